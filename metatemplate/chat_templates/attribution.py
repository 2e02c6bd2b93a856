"""Finds the origin of each piece of a prompt: the template is rendered a second time, with placeholders as texts.

A chat template is a program, so a prompt alone does not show which part the client wrote. For the second rendering,
each text of the request is replaced by a random number, which no client can have written. Digits stay the same in JSON
and in upper case. The numbers show where the prompt has the texts of the request. Then the two renderings are compared
from begin to end. If anything else differs, the template has cut, counted or compared the texts. Then the whole prompt
becomes one segment of origin ``mixed``, which counts as text of the client.

White space around a text is not replaced, because templates trim texts. If the comparison fails, a second attempt also
keeps the constants of the template, such as a ``</think>`` at which the template splits a text. A constant that may
come from the client or from the template counts as text of the client.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from metatemplate.chat_templates.sandbox.compiled_template import CompiledTemplate
from metatemplate.errors import MetaTemplateError
from metatemplate.values.dialogue import COMPARED_KEYS, PLAIN_VALUE
from metatemplate.values.prompt import MIXED, Segment

PLAIN_WORD = re.compile(r"[a-z_]{1,32}")
"""Matches the values of ``COMPARED_KEYS`` that get no placeholder."""
STANDARD_KEYS = frozenset({
    "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking", "type",
    "text", "id", "function", "arguments", "description", "parameters", "strict", "properties", "required", "items",
    "enum", "title", "default", "additionalProperties", "anyOf", "oneOf", "allOf", "format", "nullable", "minimum",
    "maximum", "$defs", "$ref", "const",
})  # fmt: skip
"""Standard keys of messages, tools and JSON Schema. These keys are never replaced with placeholders."""

SERIAL_DIGITS = 8
"""The number of digits of a placeholder's serial number."""

Keeps = Callable[[str, str], bool]
"""A function that returns whether the text under a key gets no placeholder."""
RenderVariables = Callable[[Mapping[str, Any]], str]
"""A function that renders the template with the given variables. Raises ``MetaTemplateError``."""

FORMS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    str.upper,
    str.lower,
    str.title,
    str.capitalize,
    lambda text: text.replace("\n", " "),
)
"""The functions that a template may apply to a text of the client."""


def segments_of(
    text: str,
    variables: Mapping[str, Any],
    *,
    request_variables: Collection[str],
    template: CompiledTemplate,
    end_mark: str,
    render: RenderVariables,
) -> tuple[Segment, ...]:
    """Return the segments of ``text``, the result of ``render(variables)``.

    ``request_variables``: names of variables that the request has set. ``end_mark``: a text that is never replaced.
    """
    for constants in ([end_mark], [end_mark, *template.constants]):
        placeholders = _Placeholders(template.keys, constants)
        try:
            traced = render(placeholders.replace_variables(variables, request_variables))
        except MetaTemplateError:
            continue  # the template refuses the placeholders
        segments = placeholders.compare(text, traced)
        if segments is not None:
            return tuple(_with_generation_prompt(segments, text, variables, render))
    return (Segment(text, "", MIXED, False),)


def without_texts(
    variables: Mapping[str, Any],
    request_variables: Collection[str],
    keys: frozenset[str],
    end_mark: str,
    keeps: Keeps,
) -> Mapping[str, Any]:
    """Return the variables with a number in place of each text of the client, for a prompt of the same shape.

    Equal texts are replaced by equal numbers, because a template may compare texts. For the same reason, the texts
    stay for which ``keeps`` returns True, and the plain values of the request's variables. See ``segments_of``.
    """
    return _Placeholders(keys, [end_mark], keeps).replace_variables(variables, request_variables)


class _Placeholders:
    """Replaces the texts of a request with placeholders, and finds these texts in a prompt."""

    def __init__(self, keys: frozenset[str], constants: Iterable[str], keeps: Keeps | None = None) -> None:
        """Create the object. ``keys``: the keys that the template reads. ``constants``: texts that are not replaced.

        ``keeps``: texts that are not replaced. If it is given, equal texts get the same number. The origins of texts
        can then not be told apart.
        """
        self._keeps = keeps
        self._keys = keys | STANDARD_KEYS
        self._constants = _any_of([text for text in constants if len(text) > 1 and text.strip()])
        self._prefix = str(secrets.randbelow(10**20)).zfill(20)
        self._numbers = count()
        self._known: dict[str, str] | None = {} if keeps is not None else None
        """Text → its number. None if each text gets its own number."""
        self._replaced: dict[str, Segment] = {}
        """Number of the placeholder → the replaced text with its origin and role."""
        self._found_constants: set[str] = set()
        """The constants that the client's texts contain."""

    def replace_variables(self, variables: Mapping[str, Any], request_variables: Collection[str]) -> Mapping[str, Any]:
        """Return the variables with a placeholder for each text of the client."""
        replaced = dict(variables)
        for name in request_variables:
            value = variables[name]
            if self._keeps is None or not isinstance(value, str) or not PLAIN_VALUE.fullmatch(value):
                replaced[name] = self._replace(value, f"chat_template_kwargs.{name}")
        for name in ("messages", "tools", "documents"):
            if isinstance(variables.get(name), (list, tuple)):
                replaced[name] = [
                    self._replace(value, f"{name}[{number}]", value["role"] if name == "messages" else "")
                    for number, value in enumerate(variables[name])
                ]
        return replaced

    def _replace(self, value: Any, origin: str, role: str = "", key: str = "") -> Any:
        if isinstance(value, str):
            is_compared = key in COMPARED_KEYS and PLAIN_WORD.fullmatch(value)
            is_kept = is_compared or (self._keeps is not None and self._keeps(key, value))
            return value if is_kept else self._replace_text(value, origin, role)
        if isinstance(value, Mapping):
            # Placeholders are numbered in the order of the keys, so that sorted keys keep their order.
            names, known = sorted(value), self._keys
            keys = {name: name if name in known else self._replace_text(name, origin, role) for name in names}
            return {keys[name]: self._replace(inner, origin, role, name) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._replace(inner, origin, role, key) for inner in value]
        return value

    def _replace_text(self, text: str, origin: str, role: str) -> str:
        parts: list[str] = []
        at = 0
        for constant in self._constants.finditer(text):
            self._found_constants.add(constant[0])
            parts += [self._placeholder(text[at : constant.start()], origin, role), constant[0]]
            at = constant.end()
        return "".join(parts) + self._placeholder(text[at:], origin, role)

    def _placeholder(self, text: str, origin: str, role: str) -> str:
        core = text.strip()
        if not core:
            return text
        number = str(next(self._numbers)).zfill(SERIAL_DIGITS)
        if self._known is not None:
            number = self._known.setdefault(core, number)
        self._replaced[number] = Segment(core, role, origin, False)
        before, _, after = text.partition(core)
        return f"{before}{self._prefix}{number}{after}"

    def compare(self, text: str, traced: str) -> list[Segment] | None:
        """Return the segments of ``text``; None if the two renderings differ in more than the placeholders."""
        # Text of the template and placeholder numbers alternate: text, number, text, number, …, text
        pieces = re.split(f"{self._prefix}([0-9]{{{SERIAL_DIGITS}}})", traced)
        if not text.startswith(pieces[0]):
            return None
        constants = _any_of(self._found_constants)
        segments = list(_scaffold(pieces[0], constants))
        at = len(pieces[0])
        for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
            replaced = self._replaced.get(number)
            if replaced is None:
                return None
            forms = (form(replaced.text) for form in FORMS)
            written = next((one for one in forms if text.startswith(one + after, at)), None)
            if written is None:
                return None
            segments.append(Segment(written, replaced.role, replaced.origin, False))
            segments += _scaffold(after, constants)
            at += len(written) + len(after)
        return _joined(segments) if at == len(text) else None


def _scaffold(text: str, mixed: re.Pattern[str]) -> Iterator[Segment]:
    """Yield the segments of a template's text. ``mixed`` matches constants that the client's texts also contain."""
    at = 0
    for constant in mixed.finditer(text):
        if constant.start() > at:
            yield Segment(text[at : constant.start()], "", "template", True)
        yield Segment(constant[0], "", MIXED, False)
        at = constant.end()
    if at < len(text):
        yield Segment(text[at:], "", "template", True)


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression that finds any of the texts and prefers longer texts."""
    return re.compile("|".join([re.escape(text) for text in sorted(texts, key=len, reverse=True)]) or "(?!)")


def _joined(segments: list[Segment]) -> list[Segment]:
    """Join adjacent segments of the same origin. A constant inside a text of the client becomes a part of this text."""
    joined: list[Segment] = []
    for number, segment in enumerate(segments):
        if segment.origin == MIXED and joined and number + 1 < len(segments):
            before, after = joined[-1], segments[number + 1]
            if not before.scaffold and before.origin == after.origin != MIXED:
                segment = Segment(segment.text, before.role, before.origin, False)
        if joined and (joined[-1].origin, joined[-1].role) == (segment.origin, segment.role):
            segment = Segment(joined.pop().text + segment.text, segment.role, segment.origin, segment.scaffold)
        joined.append(segment)
    return joined


def _with_generation_prompt(
    segments: list[Segment], text: str, variables: Mapping[str, Any], render: RenderVariables
) -> list[Segment]:
    """Return the segments. The beginning of the model's turn, if present, gets the origin ``generate``."""
    if not segments or not segments[-1].scaffold or not variables["add_generation_prompt"]:
        return segments
    try:
        without = render({**variables, "add_generation_prompt": False})
    except MetaTemplateError:
        return segments
    last, opening = segments[-1].text, text[len(without) :] if text.startswith(without) else ""
    if not opening or len(opening) > len(last):
        return segments
    before = [Segment(last[: -len(opening)], "", "template", True)] if len(opening) < len(last) else []
    return [*segments[:-1], *before, Segment(opening, "", "generate", True)]
