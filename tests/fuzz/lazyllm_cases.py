"""Runs cases of the LazyLLM oracle with the gateway's prompters. Imported by ``conformance`` and ``fuzz-lazyllm``.

A case is ``{"kind": …, …}`` in the oracle's format; its result is ``{"result": …}`` or ``{"error": "Class: message"}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from metatemplate.prompters.dialects import CURRENT, DIALECTS, PrompterDialect
from metatemplate.prompters.instruction import write_tools
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.legacy_prompter import LegacyPrompter
from tests.support.reference.lazyllm.modules import local_prompter
from tests.support.reference.lazyllm.names import tokens_for
from tests.support.reference.lazyllm.prompter import Prompter, alpaca, chat, empty
from tests.support.reference.lazyllm.tool_calls import ToolTokens, extract_calls

Case = Mapping[str, Any]

RELEASES: Mapping[str, PrompterDialect] = {
    "lazyllm 1.4.0": CURRENT,
    "lazyllm 0.1.2": DIALECTS["0.1.2"],
    "lazyllm 0.1.1": DIALECTS["0.1"],
}

MAKERS: Mapping[str, Callable[..., Prompter]] = {
    "AlpacaPrompter": alpaca,
    "ChatPrompter": chat,
    "EmptyPrompter": empty,
}
NAMES = {"alpaca": "AlpacaPrompter", "chat": "ChatPrompter", "empty": "EmptyPrompter"}


def decode(value: Any) -> Any:
    """Convert a value from the oracle's JSON; ``$tuple`` and ``$float`` mark values that JSON lacks."""
    if isinstance(value, dict):
        if set(value) == {"$tuple"}:
            return tuple(decode(entry) for entry in value["$tuple"])
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {key: decode(entry) for key, entry in value.items()}
    return [decode(entry) for entry in value] if isinstance(value, list) else value


def encode(value: Any) -> Any:
    """Convert a value to the oracle's JSON; the reverse of ``decode``."""
    if isinstance(value, tuple):
        return {"$tuple": [encode(entry) for entry in value]}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [encode(entry) for entry in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$float": repr(value)}
    return value if value is None or isinstance(value, (str, int, float, bool)) else {"$repr": repr(value)}


def build_prompter(case: Case, dialect: PrompterDialect) -> Prompter | LegacyPrompter:
    """Construct the prompter of a case and set the tokens of its model, then the tokens of the case."""
    cls, init = case.get("cls", "ChatPrompter"), decode(case.get("init") or {})
    if cls == "Prompter":
        return LegacyPrompter.from_template(case["template"], **init) if "template" in case else LegacyPrompter(**init)
    if not dialect.modern:
        if "extra_keys" in init:
            raise PrompterError("TypeError", "__init__() got an unexpected keyword argument 'extra_keys'")
        init = {"extra_keys" if key == "extro_keys" else key: value for key, value in init.items()}
    prompter = MAKERS[cls](**init, dialect=dialect, built_in_system=not case.get("disable_system_prompt"))
    if case.get("model") is not None:
        prompter = prompter.bound(tokens_for(case["model"], dialect))
    if case.get("model_configs") is not None:
        prompter = prompter.bound(decode(case["model_configs"]))
    return prompter


def prompt(case: Case, dialect: PrompterDialect) -> Any:
    prompter = build_prompter(case, dialect)
    if not dialect.modern and isinstance(prompter, Prompter):
        _check_keywords(prompter, case.get("call") or {})
    if "calls" in case:
        return [result_or_error(partial(prompter.generate_prompt, **decode(call))) for call in case["calls"]]
    given = decode(case.get("call") or {})
    before = json.dumps(encode(given), sort_keys=True)
    result = encode(prompter.generate_prompt(**given))
    if case.get("check_mutation") and json.dumps(encode(given), sort_keys=True) != before:
        return {"result": result, "arguments_after": encode(given)}
    return result


def _check_keywords(prompter: Prompter, call: Case) -> None:
    """Raise the TypeError of the 0.1 releases for a keyword that they do not have."""
    for name in call:
        if name == "format" or (name == "return_dict" and prompter.form == "empty"):
            raise PrompterError(
                "TypeError", f"{NAMES[prompter.form]}.generate_prompt() got an unexpected keyword argument {name!r}"
            )


def response(case: Case, dialect: PrompterDialect) -> Any:
    return build_prompter(case, dialect).get_response(**decode(case.get("call") or {}))


def trainable(case: Case, dialect: PrompterDialect) -> Any:
    given = case.get("prompt", "")
    given = (
        build_prompter(given["$prompter"], dialect)
        if isinstance(given, dict) and "$prompter" in given
        else decode(given)
    )
    prompter = local_prompter(case.get("model", ""), given, decode(case.get("prompt_history")))
    name = {"prompter": NAMES[prompter.form]}
    if "call" not in case:
        return name
    return {**name, "prompt": encode(prompter.generate_prompt(**decode(case["call"])))}


def extract(case: Case, dialect: PrompterDialect) -> Any:
    texts = {**tokens_for(case.get("model", ""), dialect), **(case.get("model_configs") or {})}
    tokens = ToolTokens(*(texts.get(f"tool_{part}_token") for part in ("start", "args", "end")))
    known = [tool["function"]["name"] for tool in decode(case.get("tools") or ())]
    found = extract_calls(case["output"], tokens, known)
    calls = [{"name": call.name, "arguments": encode(call.arguments)} for call in found.calls]
    return {"content": found.content, "tool_calls": calls}


KINDS: Mapping[str, Callable[[Case, PrompterDialect], Any]] = {
    "prompter": prompt,
    "response": response,
    "prompt_keys": lambda case, dialect: dict(tokens_for(case["model"], dialect)),
    "render_tools": lambda case, dialect: write_tools(decode(case["value"]), dialect),
    "trainable": trainable,
    "extract": extract,
}


def result_or_error(call: Callable[[], Any]) -> dict[str, Any]:
    """The result, or the error with LazyLLM's text; an unknown keyword raises Python's own ``TypeError``."""
    try:
        return {"result": encode(call())}
    except PrompterError as error:
        return {"error": error.message}
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        return {"error": f"TypeError: {error}"}


def run_case(case: Case, source: str = "lazyllm 1.4.0") -> dict[str, Any]:
    """The gateway's result for a case. Any other exception is a bug and is raised."""
    return result_or_error(lambda: KINDS[case["kind"]](case, RELEASES[source]))


def is_accepted(expected: Mapping[str, Any], got: Mapping[str, Any], compare: str) -> bool:
    """True if equal; ``any_of`` lists several accepted results, ``error_type`` compares the class of an error only."""
    if "any_of" in expected:
        return any(is_accepted(one, got, compare) for one in expected["any_of"])
    if "error" in expected and compare == "error_type":
        return str(got.get("error", "")).split(":", 1)[0] == str(expected["error"]).split(":", 1)[0]
    return got == expected
