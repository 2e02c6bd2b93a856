"""Runs cases of the OpenCompass oracle on the path of a request: ``parse_prompt``, ``DatasetPrompt`` and ``write``.

A case becomes a prompt file with ``fill: opencompass`` and the variables of a request, and its meta template a template
file. Imported by ``fuzz-opencompass``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metatemplate.datasets.prompt import DatasetPrompt
from metatemplate.datasets.prompt_list import PromptItems, without_markers
from metatemplate.datasets.validation import parse_prompt
from metatemplate.files.template import parse_spec
from metatemplate.opencompass.parsers import ParserMode
from metatemplate.templates.registry import build_for_prompt_lists
from metatemplate.values.prompt import Prompt

Input = Mapping[str, Any]
API_ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}


def prompt_of(file: Mapping[str, Any]) -> DatasetPrompt:
    return DatasetPrompt(parse_prompt({**file, "fill": "opencompass"}, name="fuzz", rows=lambda name: ()))


def written(case: Input, items: PromptItems, mode: ParserMode = "gen") -> Prompt:
    """The prompt of a model with the case's meta template; without one, of a base model."""
    meta = case.get("meta_template")
    spec = parse_spec({"kind": "meta", **meta} if meta else {"kind": "base"}, name="fuzz")
    return build_for_prompt_lists(spec).write(items, mode)


def parsed(case: Input, items: PromptItems, mode: ParserMode = "gen") -> Any:
    """The prompt in the form of the package's parser: a text, or a list of turns with ``role`` and ``prompt``."""
    prompt = written(case, items, mode)
    if prompt.messages is None:
        return prompt.text
    names = {role: name for name, role in API_ROLES.items()}
    return [{"role": names[one["role"]], "prompt": one["content"]} for one in prompt.messages]


def template_entry(row: Input | None) -> dict[str, Any]:
    return {key: value for key, value in (row or {}).items() if value}


def fewshot(case: Input) -> dict[str, Any]:
    zero = case.get("retriever") == "zero"
    file: dict[str, Any] = {
        key: template_entry(case[key]) for key in ("ice_template", "prompt_template") if key in case
    }
    file |= {key: case[key] for key in ("ice_eos_token", "gen_field_replace_token", "output_column") if key in case}
    if not zero:
        file |= {"train": case["train"], "retriever": {"kind": "fixed", "ids": case["ids"]}}
        file |= {"ice_separator": case["ice_separator"]} if "ice_separator" in case else {}
    prompt, row = prompt_of(file), case["test"][0]
    if case.get("mode", "gen") == "gen":
        return shown(case, prompt.generation(row), "gen")
    made = prompt.candidates(row)
    return {"labels": {label: shown(case, items, "ppl") for label, items in made.items()}}


def shown(case: Input, items: PromptItems, mode: ParserMode) -> dict[str, Any]:
    result = {"prompt": without_markers(items)}
    return result | ({"parsed": parsed(case, items, mode)} if "parser" in case else {})


def raw_template(case: Input) -> list[Any]:
    """The messages of a RawPromptTemplate. The examples of the case have no columns."""
    template, ice = case["template"], case.get("ice") or []
    file: dict[str, Any] = {"prompt_template": {"ice_token": "</E>", **template}, "output_column": "answer"}
    if ice:
        file["ice_template"] = {"messages": ice}
    return list(prompt_of(file).generation(case["entry"], [{}] if ice else []))


def mm(case: Input) -> dict[str, Any]:
    file = {"prompt_template": case["template"], "output_column": "answer"}
    return {"prompt": without_markers(prompt_of(file).generation(case["entry"]))}


def multiturn(case: Input) -> dict[str, Any]:
    file = {"prompt_template": case["template"], "output_column": "answer", "multi_turn": True}
    requests = prompt_of(file).turns(case["entry"], case["infer_mode"])
    sent: list[Any] = []
    answers: Sequence[str] = case.get("model_answers", ())
    try:
        items = next(requests)
        while True:
            sent.append(parsed(case, items))
            turn = len(sent) - 1
            if turn in case.get("failures", ()):
                break
            items = requests.send(answers[turn] if turn < len(answers) else f"answer{turn + 1}")
    except StopIteration:
        pass
    return {"requests": sent}


KINDS: Mapping[str, Callable[[Input], Any]] = {
    "fewshot": fewshot,
    "raw_template": raw_template,
    "mm": mm,
    "multiturn": multiturn,
}


def comparable(kind: str, result: Any) -> Any:
    """The part of the package's result that a request to the gateway has: prompts without markers, and requests."""
    if kind == "raw_template":
        return result
    if kind == "multiturn":
        return {"requests": [one["input"] for one in result.get("requests", ())]}
    if kind == "mm":
        return {"prompt": without_markers(result["prompt"])}
    if "labels" in result:
        return {"labels": {str(label): _prompt(one) for label, one in result["labels"].items()}}
    return _prompt(result)


def _prompt(result: Mapping[str, Any]) -> dict[str, Any]:
    found = {"prompt": without_markers(result["prompt"])}
    return found | ({"parsed": result["parsed"]} if "parsed" in result else {})
