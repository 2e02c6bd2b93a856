"""Conformance cases of dataset prompts: templates, few-shot, multi-turn, multimodal, chat inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metatemplate.datasets.few_shot import check_ice_token, few_shots
from metatemplate.datasets.messages import MessagesTemplate
from metatemplate.datasets.multi_turn import multi_turn_dialogue
from metatemplate.datasets.multimodal import multimodal_prompt
from metatemplate.datasets.prompt_list import marker
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.datasets.turn_requests import turn_requests
from metatemplate.errors import TemplateFailure
from tests.support.reference.opencompass import wrappers
from tests.support.reference.opencompass.chat_parser import ChatAPIParser, ChatLMParser
from tests.support.reference.opencompass.conversation import conversation
from tests.support.reference.opencompass.dialect import Dialect
from tests.support.reference.opencompass.parsers import APIParser, LMParser
from tests.support.reference.opencompass.prompt_list import PromptList

Input = Mapping[str, Any]


def template_of(row: Input | None) -> DatasetTemplate | None:
    if row is None:
        return None
    return DatasetTemplate(
        row["template"],
        ice_token=row.get("ice_token") or "",
        sep_token=row.get("sep_token") or "",
        column_tokens=row.get("column_token_map") or {},
        exact=True,
    )


def as_reference(prompt: Any) -> Any:
    """A prompt as the reference packages write it, whose section ``end`` has two end markers."""
    if not isinstance(prompt, list):
        return prompt
    begin, end = marker("end", "begin"), marker("end", "end")
    return PromptList(end if item == begin else item for item in prompt)


def typed(name: str, value: Any) -> dict[str, Any]:
    return {name: value, f"{name}_type": type(value).__name__}


def parse(case: Input, dialect: Dialect, prompt: Any, mode: str) -> Any:
    meta = case.get("meta_template")
    parser = LMParser(meta) if case["parser"] == "lm" else APIParser(meta, dialect)
    return parser.parse(as_reference(prompt), mode)


def prompt_template(case: Input, dialect: Dialect) -> Any:
    template = template_of(case["template"])
    assert template is not None
    method, entry = case.get("method", "generate_item"), case["entry"]
    if method == "generate_label_prompt_item":
        return as_reference(template.candidate(case["label"], entry, case.get("ice", "")))
    if method == "generate_ice_item":
        return as_reference(template.shot(entry, case.get("label")))
    mask_text = case.get("output_field_replace_token", "")
    return as_reference(
        template.generation(entry, case.get("ice", ""), mask=case.get("output_field"), mask_text=mask_text)
    )


def raw_template(case: Input, dialect: Dialect) -> Any:
    """The messages of a RawPromptTemplate; only a list of messages is inserted at the place of the examples."""
    given = case["template"]
    if not given.get("format_variables", True):
        raise TemplateFailure("the gateway always fills columns")
    template = MessagesTemplate(given["messages"], ice_token=given.get("ice_token", "</E>"), exact=True)
    if case.get("method") == "generate_ice_item":
        return template.generation(case["entry"])
    ice = case.get("ice", "")
    return template.generation(case["entry"], ice if isinstance(ice, list) else ())


def fewshot(case: Input, dialect: Dialect) -> Any:
    zero = case.get("retriever") == "zero"
    default = "" if zero else "\n"
    separators = {"separator": case.get("ice_separator", default), "end": case.get("ice_eos_token", default)}
    ice = template_of(case.get("ice_template"))
    template = template_of(case.get("prompt_template")) or ice
    if template is None:
        raise TemplateFailure("a dataset prompt needs prompt_template or ice_template")
    check_ice_token(template, ice)
    sample, mode = case["test"][0], case.get("mode", "gen")
    shown = [] if zero else [case["train"][number] for number in case["ids"]]
    output_column = case["output_column"]
    shots = few_shots(ice, shown, output_column=output_column, **separators)
    result = typed("ice", as_reference(shots))
    if mode == "gen":
        mask_text = case.get("gen_field_replace_token", "")
        prompt = template.generation(sample, shots, mask=output_column, mask_text=mask_text)
        return result | shown_prompt(case, dialect, prompt, mode)
    labels = case.get("labels") or labels_of((template, ice), case)
    candidates = {label: template.candidate(label, sample, shots) for label in labels}
    return result | {
        "labels": {str(label): shown_prompt(case, dialect, one, mode) for label, one in candidates.items()}
    }


def labels_of(templates: tuple[DatasetTemplate | None, ...], case: Input) -> tuple[Any, ...]:
    """The labels of a choice: those of a template, or the distinct answers of the test rows in their order."""
    for template in templates:
        if template is not None and isinstance(template.template, Mapping):
            return tuple(template.template)
    answers = [row[case["output_column"]] for row in case["test"]]
    return tuple(answer for at, answer in enumerate(answers) if answer not in answers[:at])


def shown_prompt(case: Input, dialect: Dialect, prompt: Any, mode: str) -> dict[str, Any]:
    result = typed("prompt", as_reference(prompt))
    if "parser" in case:
        result |= typed("parsed", parse(case, dialect, prompt, mode))
    return result


def mm(case: Input, dialect: Dialect) -> Any:
    template = template_of(case["template"])
    assert template is not None
    result = shown_prompt(case, dialect, multimodal_prompt(template, case["entry"]), "gen")
    if case.get("to_messages"):
        result["messages"] = wrappers.ais_chat_messages(result["parsed"])
    return result


def multiturn(case: Input, dialect: Dialect) -> Any:
    template = template_of(case["template"])
    assert template is not None
    dialogue = multi_turn_dialogue(template, case["entry"])
    result: dict[str, Any] = {"template": as_reference(dialogue)}
    if "infer_mode" in case:
        requests = turn_requests(dialogue, case["infer_mode"])
        sent: list[Any] = []
        try:
            prompt = next(requests)
            while True:
                parsed = parse(case, dialect, prompt, "gen")
                length = case.get("max_out_len", 16)
                sent.append({"input": parsed, "type": type(parsed).__name__, "max_out_len": length})
                if len(sent) - 1 in case.get("failures", ()):
                    break
                prompt = requests.send(answer_of(case, len(sent) - 1))
        except StopIteration:
            pass
        result["requests"] = sent
    return result


def answer_of(case: Input, turn: int) -> str:
    """The model's answer of a turn: that of the case, or ``answer1`` and so on."""
    answers = case.get("model_answers", ())
    return str(answers[turn]) if turn < len(answers) else f"answer{turn + 1}"


def saved_row(case: Input, chat: list[Any], messages: list[Any], answer: str) -> dict[str, Any]:
    """What the reference saves: with ``every`` the model's own answer as gold, with ``last`` all messages."""
    mode = case["infer_mode"]
    return {
        "origin_prompt": messages if mode == "last" else messages[-1]["content"],
        "prediction": answer,
        "idx": sum(one["role"] == "assistant" for one in messages) if mode == "every_with_gt" else 0,
        "gold": answer if mode == "every" else chat[len(messages)]["content"],
    }


def chat_infer(case: Input, dialect: Dialect) -> Any:
    chat = conversation(case["entry"], case["input_columns"], case["output_column"], template_of(case.get("template")))
    parser = (ChatLMParser if case["parser"] == "lm" else ChatAPIParser)(case.get("meta_template"))
    requests, sent, saved = turn_requests(chat, case["infer_mode"]), [], []
    try:
        messages = next(requests)
        while True:
            sent.append(parser.parse(messages))
            answer = answer_of(case, len(sent) - 1)
            saved.append(saved_row(case, chat, messages, answer))
            messages = requests.send(answer)
    except StopIteration:
        return {"chat": chat, "requests": sent, "saved": saved}


KINDS: Mapping[str, Callable[[Input, Dialect], Any]] = {
    "prompt_template": prompt_template,
    "fewshot": fewshot,
    "raw_template": raw_template,
    "mm": mm,
    "multiturn": multiturn,
    "chat_infer": chat_infer,
}
