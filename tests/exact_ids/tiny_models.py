"""Folders of small models with random weights for a published tokenizer, as transformers, vLLM and llama.cpp read them.

``python -m tests.exact_ids.tiny_models qwen3 /tmp/qwen3`` makes one.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tests.exact_ids.tokenizers import FILES, tokenizers_folder

LAYERS, HIDDEN, HEADS, HEAD_DIM, INNER = 2, 64, 2, 32, 128
"""The sizes. vLLM's attention on a CPU needs heads of at least 32."""
CONTEXT = 8192
SEED = 41


def make_model(tokenizer: Path, folder: Path) -> Path:
    """Write a Llama with random weights into ``folder``, with the files of a tokenizer's folder. Returns ``folder``.

    The same tokenizer gives the same weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(tokenizer / name, folder)
    vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    size = vocabulary_size(tokenizer)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": size,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float16",
        **token_ids(tokenizer, vocabulary),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights(size))
    return folder


def vocabulary_size(tokenizer: Path) -> int:
    """Return the number of rows of the embedding."""
    size = max(Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab().values()) + 1
    return size + -size % 64


def token_ids(tokenizer: Path, vocabulary: Tokenizer) -> dict[str, int]:
    """Return the ids of the begin and the end of a text, which an engine reads in ``config.json``."""
    config = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    names = {key: config.get(key) for key in ("bos_token", "eos_token", "pad_token")}
    ids = {f"{key}_id": vocabulary.token_to_id(name) for key, name in names.items() if name}
    return {key: number for key, number in ids.items() if number is not None}


def weights(size: int) -> dict[str, np.ndarray]:
    """Return the tensors of a Llama by their published names."""
    rng = np.random.default_rng(SEED)
    shapes = {"model.embed_tokens.weight": (size, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at, wide = f"model.layers.{layer}.", HEADS * HEAD_DIM
        shapes |= {f"{at}self_attn.{name}_proj.weight": (wide, HIDDEN) for name in "qkv"}
        shapes |= {f"{at}self_attn.o_proj.weight": (HIDDEN, wide), f"{at}mlp.down_proj.weight": (HIDDEN, INNER)}
        shapes |= {f"{at}mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        shapes |= {f"{at}{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    return {
        name: np.ones(shape, np.float16)
        if "norm" in name
        else rng.standard_normal(shape, np.float32).astype(np.float16) * np.float16(0.1)
        for name, shape in shapes.items()
    }


def write_safetensors(file: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write tensors of 16-bit floats in the format of safetensors: length of the head, head, data."""
    head: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        head[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    data = json.dumps(head).encode()
    data += b" " * (-len(data) % 8)
    with file.open("wb") as out:
        out.write(len(data).to_bytes(8, "little") + data)
        for tensor in tensors.values():
            out.write(tensor.tobytes())


if __name__ == "__main__":
    print(make_model(tokenizers_folder() / sys.argv[1], Path(sys.argv[2])))
