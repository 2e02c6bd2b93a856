"""Write the model of ``tiny_models.py`` for a tokenizer's folder as a GGUF file: ``to_gguf.py FOLDER FILE``.

Runs in the environment of ``install``. The weights are random, so their order in the rotary embedding does not matter.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

from tests.exact_ids.tiny_models import CONTEXT, HEAD_DIM, HEADS, HIDDEN, INNER, LAYERS, vocabulary_size, weights

SPLITTERS = {
    "llama3": "llama-bpe",
    "qwen3": "qwen2",
    "gptoss": "gpt-4o",
    "deepseek_v3": "deepseek-v3",
    "tekken": "tekken",
}
"""Tokenizer → llama.cpp's name of the expressions that split a text, as its ``convert_hf_to_gguf.py`` finds it."""
UNREACHABLE = -1e6
"""The score of a piece that no merge makes."""
TENSORS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
}
"""The published name of a layer's tensor → its name in a GGUF file."""


def main() -> None:
    """Write one file."""
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    writer = GGUFWriter(str(file), "llama")
    size = vocabulary_size(folder)
    sizes(writer, size)
    vocabulary(writer, folder, size)
    for name, tensor in weights(size).items():
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            name = f"blk.{layer}.{TENSORS[rest.removesuffix('.weight')]}.weight"
        else:
            name = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
        writer.add_tensor(name, tensor if tensor.ndim > 1 else tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sizes(writer: GGUFWriter, size: int) -> None:
    """Write the sizes of the model."""
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(size)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)


def vocabulary(writer: GGUFWriter, folder: Path, size: int) -> None:
    """Write the tokens with their kinds, the merges or the scores, the special tokens and the chat template."""
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    tokens: list[str] = [f"[PAD{number}]" for number in range(size)]
    kinds = [TokenType.UNUSED] * size
    for token, number in data["model"]["vocab"].items():
        tokens[number], kinds[number] = token, TokenType.NORMAL
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in data["model"]["merges"]]
    if data["model"]["byte_fallback"]:
        kinds = [TokenType.BYTE if is_byte(token) else kind for token, kind in zip(tokens, kinds, strict=True)]
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(scores(tokens, merges))
        writer.add_add_space_prefix(False)  # the rendered text begins with a token of the template
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(SPLITTERS[folder.name])
        writer.add_token_merges([" ".join(one) for one in merges])
    ids: dict[str, int] = {}
    for added in data["added_tokens"]:
        ids[added["content"]] = number = added["id"]
        tokens[number] = added["content"]
        kinds[number] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    special(writer, config, ids, begins="bos_token" in template)
    writer.add_chat_template(template)


def is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def scores(tokens: list[str], merges: list[tuple[str, ...]]) -> list[float]:
    """Return the scores with which llama.cpp merges the pieces in the order of the merges."""
    first: dict[str, int] = {}
    for rank, pair in enumerate(merges):
        first.setdefault("".join(pair), rank)
    return [-float(first[token]) if token in first else UNREACHABLE for token in tokens]


def special(writer: GGUFWriter, config: dict[str, Any], ids: dict[str, int], begins: bool) -> None:
    """Write the tokens that begin and end a text. ``begins``: whether llama.cpp adds the first one to a text."""
    if config.get("bos_token"):
        writer.add_bos_token_id(ids[config["bos_token"]])
    writer.add_eos_token_id(ids[config["eos_token"]])
    writer.add_add_bos_token(begins)


if __name__ == "__main__":
    main()
