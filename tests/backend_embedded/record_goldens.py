"""Record what other implementations compute, for ``test_embedded_*`` to compare with. Not run by the tests.

    python record_goldens.py architectures            # needs torch and transformers, in a venv of their own
    python record_goldens.py demo http://host:port    # a completions server with demo/model, such as vLLM or llama.cpp

``architectures`` writes small folders with random weights, saved by transformers, and the logits that
transformers computes with them in float32. ``demo`` writes requests and the server's answers.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).parent / "goldens"
SUM = "<HUMAN>: {}=?<eoh>\n<BOT>: "

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {  # name: (class, dtype, what differs from SMALL)
    "llama-llama3-rope-bf16": ("Llama", "bfloat16", {"rope_parameters": LLAMA3}),
    "qwen2-tied-bf16": ("Qwen2", "bfloat16", {"tie_word_embeddings": True}),
    "qwen3-wide-heads-f32": ("Qwen3", "float32", {"head_dim": 16, "intermediate_size": 24, "vocab_size": 48}),
}

REQUESTS: dict[str, dict[str, Any]] = {
    "greedy to the stop": {"prompt": SUM.format("12+34"), "temperature": 0, "max_tokens": 8, "stop": ["<eob>"]},
    "past the stop": {"prompt": SUM.format("12+34"), "temperature": 0, "max_tokens": 12},
    "logprobs": {"prompt": SUM.format("7+8"), "temperature": 0, "max_tokens": 3, "logprobs": 5},
    "echo and logprobs of a string": {
        "prompt": SUM.format("55+5"),
        "temperature": 0,
        "max_tokens": 1,
        "echo": True,
        "logprobs": 1,
    },
    "echo and logprobs of ids": {
        "prompt": [1, 380, 29, 224, 20],
        "temperature": 0,
        "max_tokens": 1,
        "echo": True,
        "logprobs": 3,
    },
    "echo alone": {"prompt": SUM.format("1+1"), "temperature": 0, "max_tokens": 0, "echo": True, "logprobs": 1},
    "a list": {"prompt": [SUM.format("1+2"), SUM.format("30+4"), "x"], "temperature": 0, "max_tokens": 4},
}


def record_architectures() -> None:
    import numpy as np
    import torch
    import transformers

    for seed, (name, (family, dtype, given)) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{family}Config")(**{**SMALL, **given})
        model = getattr(transformers, f"{family}ForCausalLM")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                # Biases and norms start at 0 and 1; random ones show whether they are used.
                parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim > 1 else 0.3))
        folder = GOLDENS / name
        model.to(getattr(torch, dtype)).save_pretrained(folder)
        reference = getattr(transformers, f"{family}ForCausalLM").from_pretrained(folder, dtype=torch.float32)
        ids = torch.randint(0, config.vocab_size, (1, 40))
        with torch.no_grad():
            logits = reference(input_ids=ids).logits[0]
        np.savez_compressed(folder / "expected.npz", ids=ids[0].numpy(), logits=logits.numpy())
        print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


def record_demo(server: str) -> None:
    recorded = {}
    for name, body in REQUESTS.items():
        request = urllib.request.Request(
            f"{server}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            recorded[name] = {"request": body, "choices": json.load(answer)["choices"]}
    (GOLDENS / "demo.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record_architectures() if sys.argv[1] == "architectures" else record_demo(sys.argv[2])
