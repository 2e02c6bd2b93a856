"""Parsers of other projects, for ``fuzz-tool-formats``: runs with the Python of an environment that has them installed.

Reads a case on each line, ``{"oracle": …, "family": …, "text": …, "tools": […]}``. Writes a result on each line,
``{"calls": [[name, arguments], …]}`` or ``{"error": …}``. It imports nothing of this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Calls = list[tuple[str, Any]]
SECONDS = 1
"""The time for one answer. Parsers can be endless."""
Parse = Callable[[str, Sequence[Mapping[str, Any]]], Calls]

# ---------------------------------------------------------------- SGLang: text

SGLANG = {  # family: (module, class)
    "Qwen3": ("qwen25_detector", "Qwen25Detector"),
    "Hermes 4": ("hermes_detector", "HermesDetector"),
    "Llama 3.1": ("llama32_detector", "Llama32Detector"),
    "Mistral Nemo": ("mistral_detector", "MistralDetector"),
    "Ministral 3": ("mistral_detector", "MistralDetector"),
    "Qwen3-Coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "Qwen3-Coder-Next": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "Qwen3.5": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "Nemotron 3": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "GLM-4.5": ("glm4_moe_detector", "Glm4MoeDetector"),
    "GLM-5": ("glm47_moe_detector", "Glm47MoeDetector"),
    "Kimi K2": ("kimik2_detector", "KimiK2Detector"),
    "Kimi K2 Thinking": ("kimik2_detector", "KimiK2Detector"),
    "DeepSeek V3": ("deepseekv3_detector", "DeepSeekV3Detector"),
    "DeepSeek V3.1": ("deepseekv31_detector", "DeepSeekV31Detector"),
    "DeepSeek V3.1 Terminus": ("deepseekv31_detector", "DeepSeekV31Detector"),
    "DeepSeek V3.2": ("deepseekv32_detector", "DeepSeekV32Detector"),
    "DeepSeek V4": ("deepseekv4_detector", "DeepSeekV4Detector"),
    "MiniMax M2": ("minimax_m2", "MinimaxM2Detector"),
    "Gemma 4": ("gemma4_detector", "Gemma4Detector"),
    "gpt-oss": ("gpt_oss_detector", "GptOssDetector"),
}


@cache
def sglang_packages() -> Any:
    """Make ``sglang.srt.function_call`` importable without torch. Returns the class of a tool.

    The packages above it import the whole engine when they are loaded, so they are replaced by empty ones. The
    detectors themselves need two names of ``protocol``: a tool with a function, and a type for annotations.
    """
    from pydantic import BaseModel

    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    for name in ("", ".srt", ".srt.parser", ".srt.entrypoints", ".srt.entrypoints.openai"):
        package = types.ModuleType(f"sglang{name}")
        package.__path__ = [str(root / name.strip(".").replace(".", "/"))]
        sys.modules[package.__name__] = package

    class Function(BaseModel):
        name: str
        parameters: Any = None
        strict: bool = False

    class Tool(BaseModel):
        type: str
        function: Function

    protocol = types.ModuleType("sglang.srt.entrypoints.openai.protocol")
    vars(protocol).update(Tool=Tool, Function=Function, ToolChoice=Any)
    sys.modules[protocol.__name__] = protocol
    Tool.model_rebuild(_types_namespace={"Function": Function, "Any": Any})
    return Tool


def sglang(family: str) -> Parse:
    tool = sglang_packages()
    module, name = SGLANG[family]
    detector = getattr(importlib.import_module(f"sglang.srt.function_call.{module}"), name)

    def parse(text: str, tools: Sequence[Mapping[str, Any]]) -> Calls:
        models = [tool.model_validate(one) for one in tools]
        found = detector().detect_and_parse(text, models)
        return [(call.name, json.loads(call.parameters)) for call in found.calls]

    return parse


# ---------------------------------------------------------------- renderers: tokens

RENDERERS = {  # family: (module, class)
    "Qwen3": ("qwen3", "Qwen3Renderer"),
    "Qwen3.5": ("qwen35", "Qwen35Renderer"),
    "Nemotron 3": ("nemotron3", "Nemotron3Renderer"),
    "GLM-4.5": ("glm45", "GLM45Renderer"),
    "GLM-5": ("glm5", "GLM5Renderer"),
    "Kimi K2": ("kimi_k2", "KimiK2Renderer"),
    "DeepSeek V3": ("deepseek_v3", "DeepSeekV3Renderer"),
    "DeepSeek V4": ("deepseek_v4", "DeepSeekV4Renderer"),
    "MiniMax M2": ("minimax_m2", "MiniMaxM2Renderer"),
    "Gemma 4": ("gemma4", "Gemma4Renderer"),
    "Llama 3.1": ("llama_3", "Llama3Renderer"),
}


class Tokenizer:
    """A tokenizer in which each special token that was asked for is one id, and each other character is one id."""

    name_or_path = ""
    unk_token_id = None
    eos_token_id = 1
    FIRST = 0x110000

    def __init__(self) -> None:
        self.specials: list[str] = []

    def convert_tokens_to_ids(self, token: Any) -> Any:
        if not isinstance(token, str):
            return [self.convert_tokens_to_ids(one) for one in token]
        if len(token) == 1:
            return ord(token)
        if token not in self.specials:
            self.specials.append(token)
        return self.FIRST + self.specials.index(token)

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        ids, at = [], 0
        self.convert_tokens_to_ids(re.findall("</?think>|<｜[^｜<>]+｜>|｜[^｜<>]+｜", text))
        specials = sorted(self.specials, key=len, reverse=True)
        while at < len(text):
            token = next((one for one in specials if text.startswith(one, at)), text[at])
            ids.append(self.convert_tokens_to_ids(token))
            at += len(token)
        return ids

    def decode(self, ids: Any, *_: Any, skip_special_tokens: bool = False, **__: Any) -> str:
        ids = [ids] if isinstance(ids, int) else ids
        return "".join(
            chr(one) if one < self.FIRST else "" if skip_special_tokens else self.specials[one - self.FIRST]
            for one in ids
        )


def renderers(family: str) -> Parse:
    module, name = RENDERERS[family]
    tokenizer = Tokenizer()
    renderer = getattr(importlib.import_module(f"renderers.{module}"), name)(tokenizer)

    def parse(text: str, tools: Sequence[Mapping[str, Any]]) -> Calls:
        found = renderer.parse_response(tokenizer.encode(text), tools=list(tools)).tool_calls
        # The status of a call with an argument that does not fit its schema is not ok either.
        return [(call.name, call.arguments) for call in found if call.name and isinstance(call.arguments, dict)]

    return parse


# ---------------------------------------------------------------- mistral-common: tokens

MISTRAL = {"Mistral Nemo": "v3", "Ministral 3": "v13"}


def mistral(family: str) -> Parse:
    from mistral_common import data
    from mistral_common.experimental.tools import _decode_tool_calls, _split_content_and_tool_calls
    from mistral_common.tokens.tokenizers.base import TokenizerVersion
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    file = json.loads((Path(next(iter(data.__path__))) / "tekken_240911.json").read_text(encoding="utf-8"))
    config = file["config"]
    names = ("<unk>", "<s>", "</s>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    specials = [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(names)]
    tokenizer = Tekkenizer(
        file["vocab"],
        specials,
        pattern=config["pattern"],
        vocab_size=config["default_vocab_size"],
        num_special_tokens=config["default_num_special_tokens"],
        version=TokenizerVersion(MISTRAL[family]),
    )

    def parse(text: str, tools: Sequence[Mapping[str, Any]]) -> Calls:
        ids: list[int] = []
        for number, piece in enumerate(text.split("[TOOL_CALLS]")):
            ids += [names.index("[TOOL_CALLS]")] * bool(number)
            for part, args in enumerate(piece.split("[ARGS]")):
                ids += [names.index("[ARGS]")] * bool(part) + tokenizer.encode(args, bos=False, eos=False)
        _, calls = _split_content_and_tool_calls(ids, names.index("[TOOL_CALLS]"))
        return [
            (call.function.name, json.loads(call.function.arguments)) for call in _decode_tool_calls(calls, tokenizer)
        ]

    return parse


ORACLES: dict[str, tuple[Callable[[str], Parse], Sequence[str]]] = {
    "sglang": (sglang, tuple(SGLANG)),
    "renderers": (renderers, tuple(RENDERERS)),
    "mistral-common": (mistral, tuple(MISTRAL)),
}
"""Name of the package → (function that returns the parser of a family, the families)."""


@cache
def parser_of(oracle: str, family: str) -> Parse:
    return ORACLES[oracle][0](family)


def stop(*_: Any) -> None:
    raise TimeoutError(f"no result after {SECONDS} s")


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # parsers print
    signal.signal(signal.SIGALRM, stop)
    for line in sys.stdin:
        case = json.loads(line)
        try:
            parse = parser_of(case["oracle"], case["family"])
            signal.alarm(SECONDS)
            text = json.dumps({"calls": parse(case["text"], case["tools"])})
        except Exception as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
        finally:
            signal.alarm(0)
        print(text, file=out, flush=True)


if __name__ == "__main__":
    main()
