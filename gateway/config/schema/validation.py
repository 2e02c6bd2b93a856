"""Reads a parsed settings file into the classes of ``config/snapshot.py``, and reports every problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic import SecretStr
from pydantic_core import ErrorDetails

from gateway.config.schema.kinds import INVALID, SecretReference
from gateway.config.schema.settings import ALIASES, FILES, POLICY
from gateway.wire.request_fields import FORBIDDEN, STRUCTURAL, ChatRequest
from metatemplate.files.file_types import read
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.json_values import REMOVED, UNKNOWN, KeyPath, part, problem_text
from metatemplate.values.words import closest, quoted, suggest

PARAMETERS: Final = ChatRequest.model_fields.keys() - STRUCTURAL - FORBIDDEN
"""The request parameters that a policy may set."""
OTHER_PLACES: Final = {
    "stop": "list it in the template of the model, under stop",
    "system_prompt": "send it as the first message, with the role system",
}
"""Names that are no setting here → where to write the value."""
EXAMPLES: Final = {"timeout": "{total: 60s}"}
"""Setting → an example of its value."""
FOLDERS: Final = {"template": "meta_templates", "policy": "policies"}
"""Setting that names a file → the folder of the file."""
ReadSecret = Callable[[SecretReference], SecretStr]
"""Returns a secret, or raises ``ValueError`` with a message for the operator."""


def check(
    document: YamlDocument, file: str, read_secret: ReadSecret = lambda reference: SecretStr(reference.name)
) -> Any:
    """Read a document as one kind of file, such as ``settings.GATEWAY``. Problems are added to the document.

    Returns the values. A refused value is replaced by ``INVALID``. By default, secrets are not read.
    """

    def explain(path: KeyPath, errors: list[ErrorDetails]) -> tuple[str, Any]:
        from gateway.config.schema.json_schema import json_schema  # has the kinds of values, for the messages

        replaced = REMOVED if errors[0]["type"] in UNKNOWN else INVALID
        return _message(json_schema(file), path, errors[0]), replaced

    return read(FILES[file], document.value, explain, document.refuse, read_secret)


def is_whole(value: Any) -> bool:
    """Return whether no value in a section was refused."""
    if is_dataclass(value):
        return all(is_whole(getattr(value, field.name)) for field in fields(value))
    return value is not INVALID


def _message(schema: dict[str, Any], path: KeyPath, error: Mapping[str, Any]) -> str:
    """Return the message for a refused value: what is wrong, and what to do."""
    here = part(schema, path)
    match error["type"]:
        case "unexpected_keyword_argument":
            return f"{problem_text(error)}{_hint(schema, path, error['input'])}"
        case "missing":
            return f"{problem_text(error)}. {here['description']}"
        case "value_error":
            message = str(error["ctx"]["error"])
            key = str(path[-1]) if path else ""
            if isinstance(error["input"], dict) and key in FOLDERS:
                return f"{message}; write it in the file {FOLDERS[key]}/NAME.yaml, and here {key}: NAME"
            # A word unlike every accepted one is answered with the purpose of the setting.
            is_word = message.startswith("must be one of ") and "(did you mean " not in message
            is_far_off = is_word or message.endswith((", not a mapping", ", not a list"))
            return f"{message}. {here['description']}" if is_far_off else message
        case "tuple_type":
            is_mapping = isinstance(error["input"], dict)
            hint = 'put "- " before the entry' if is_mapping else 'write each entry on its own line after "- "'
            return f"{problem_text(error, ['a list'])}; {hint}"
    if "properties" not in here:
        is_list = isinstance(error["input"], list)
        hint = '; write the name as a key, "my-name:" instead of "- name: my-name"' if is_list else ""
        return f"{problem_text(error, ['a mapping of names to settings'])}{hint}"
    names = here["properties"]
    if path and path[-1] in names:  # such as the model "targets"
        return f"{path[-1]} is a setting of the entry above; indent it by two more spaces"
    name, first = next(iter(names.items()))
    about = f" ({first['description']})" if name in here.get("required", ()) else ""
    default = first.get("default") or "…"
    example = next((word for word in first.get("enum", ()) if word != default), default)
    found = problem_text(error, [f"a mapping with the settings {', '.join(names)}"])
    return f"{found}; for example {{{name}: {example}}}{about}"


def _hint(schema: dict[str, Any], path: KeyPath, value: object) -> str:
    """Return the text with a suggestion for an unknown key. Empty if there is no suggestion."""
    key, node = str(path[-1]), part(schema, path[:-1])["properties"]
    meant = ALIASES.get(key, "")
    if meant in node:
        return f" (did you mean {quoted(meant)}?)"
    if key in PARAMETERS:
        policy = f"write params: {{default: {{{key}: …}}}} in the policy file of the model"
        return f"; {key} is a request parameter: {policy}"
    if key in OTHER_PLACES:
        return f"; {OTHER_PLACES[key]}"
    if closest(key, node) is None:
        if isinstance(value, dict) and "models" in node and value.keys() & {"template", "targets"}:
            return "; it looks like a model: indent it below `models:`"
        if path[:-1] == ("keys",):
            return (
                "; client keys are in a file of their own, as digests: write `keys: {file: keys.yaml}`, and make a new "
                "key with: gateway keys new NAME --write"
            )
        from gateway.config.schema.json_schema import json_schema

        here, in_policy = _place(schema, key), _place(json_schema(POLICY), key)
        if in_policy and (path[0] == "models" or not here):
            nested = f"{key}: {EXAMPLES.get(key, '…')}"
            for section in reversed(in_policy.split(".")):
                nested = f"{section}: {{{nested}}}"
            return f"; write {nested} in the policy file of the model, policies/NAME.yaml"
        if here:
            return f"; it belongs to {here}"
    return suggest(key, node)


def _place(schema: dict[str, Any], key: str) -> str:
    """Return the first section with a setting of this name, such as ``models.NAME``; empty if there is none."""
    from gateway.config.schema.json_schema import settings

    names = [name.split(".") for name, _ in settings(schema)]
    found = [steps[:at] for steps in names for at, step in enumerate(steps) if step.removesuffix("[]") == key]
    shortest: list[str] = min(found, key=len) if found else []
    return ".".join(shortest).replace("<name>", "NAME")
