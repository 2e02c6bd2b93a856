"""Renders plain Go templates, such as the TEMPLATE of an Ollama Modelfile, with Ollama's rules.

A plain template may have ``.System``, ``.Prompt``, ``.Response`` and ``if`` with one of these fields. It may have one
loop ``range .Messages`` with ``.Role``, ``.Content``, ``if eq .Role "…"`` and ``continue``. It may also have ``else``,
``else if``, comments, and trimming with ``{{-`` and ``-}}``. Any other action raises ``GoTemplateError`` with the line.
The rules come from the file ``metatemplate/templates/template.go`` in Ollama.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from metatemplate.values.dialogue import Dialogue

JOINT = "\n\n"
"""The separator between joined messages. Adjacent messages of one role are joined, and all system messages."""
BLANKS = " \t\r\n"
OF_ROLE = {"system": "System", "user": "Prompt", "assistant": "Response"}
OUTSIDE, INSIDE = tuple(OF_ROLE.values()), ("Role", "Content")
"""The fields that may be used outside and inside of ``range .Messages``."""
FIELD = re.compile(r"\.(\w+)", re.ASCII)
TEST = re.compile(r'(else\s+)?if\s+(?:\.(\w+)|eq\s+\.Role\s+"([^"\\]*)")', re.ASCII)
RANGE = re.compile(r"range\s+(?:\$\w+,\s*\$\w+\s*:=\s*)?\.Messages", re.ASCII)
COMMENT = re.compile(r"/\*.*\*/", re.DOTALL)
INSTEAD = "import the folder with the model's tokenizer instead (gateway docs import)"


class GoTemplateError(Exception):
    """Raised for a template that cannot be parsed. ``line``: the line of the problem; the first line is 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a template: a text or an action."""

    kind: Literal["text", "field", "if", "else if", "else", "end", "continue"]
    text: str = ""
    """The text, or the name of the field that the action writes or tests."""
    role: str | None = None
    """For a condition, the required value of the field; None if the field may have any value that is not empty."""


RESPONSE_FIELD = Token("field", "Response")


@dataclass(frozen=True, slots=True)
class GoTemplate:
    """A parsed template: the tokens before, inside and after the loop ``range .Messages``.

    If the template has no loop, all tokens are in ``before``.
    """

    before: Sequence[Token]
    loop: Sequence[Token] | None = None
    after: Sequence[Token] = ()

    def render(self, dialogue: Dialogue) -> str:
        """Return the prompt that Ollama makes from a conversation.

        A template with a loop gets all messages at once. A template without a loop is rendered once for each pair of
        question and answer. For the last pair, it is rendered only up to ``.Response``.
        """
        messages: list[dict[str, str]] = []
        for message in dialogue.messages:
            if messages and messages[-1]["Role"] == message.role != "tool":
                messages[-1]["Content"] += JOINT + message.text
            else:
                messages.append({"Role": message.role, "Content": message.text})
        if self.loop is not None:
            system = JOINT.join([one["Content"] for one in messages if one["Role"] == "system"])
            data = {"System": system, "Response": ""}
            turns = [_render(self.loop, one) for one in messages]
            return "".join([_render(self.before, data), *turns, _render(self.after, data)])
        exchanges = [dict.fromkeys(OUTSIDE, "")]
        for one in messages:
            field, last = OF_ROLE.get(one["Role"]), exchanges[-1]
            if (field in ("System", "Prompt") and last["Response"]) or (field == "System" and last["Prompt"]):
                exchanges.append(dict.fromkeys(OUTSIDE, ""))
            if field is not None:
                exchanges[-1][field] = one["Content"]
        tokens = self.before if RESPONSE_FIELD in self.before else [*self.before, RESPONSE_FIELD]
        texts = [_render(tokens, one) for one in exchanges[:-1]]
        return "".join([*texts, _render(tokens[: tokens.index(RESPONSE_FIELD) + 1], exchanges[-1])])


def parse(template: str) -> GoTemplate:
    """Parse a template. Raises ``GoTemplateError`` if the template has an unsupported action or a missing end."""
    parts: list[list[Token]] = [[]]
    blocks: list[tuple[int, int]] = []
    """For each open ``if``: (line, index of the current branch's first token). The index is -1 inside ``else``."""
    for line, text, is_action in _split(template):
        tokens, inside = parts[-1], len(parts) == 2
        fields = INSIDE if inside else OUTSIDE
        in_branch = bool(blocks) and blocks[-1][1] >= 0
        if not is_action:
            tokens.append(Token("text", text))
        elif COMMENT.fullmatch(text):
            continue
        elif (field := FIELD.fullmatch(text)) and field[1] in fields:
            tokens.append(Token("field", field[1]))
        elif (test := TEST.fullmatch(text)) and (test[2] or "Role") in fields and not test[1]:
            blocks.append((line, len(tokens)))
            tokens.append(Token("if", test[2] or "Role", test[3]))
        elif in_branch and (text == "else" or (test and (test[2] or "Role") in fields)):
            if RESPONSE_FIELD in tokens[blocks[-1][1] :]:
                raise GoTemplateError(line, f".Response before an else is not supported; {INSTEAD}")
            blocks[-1] = (line, len(tokens) if test else -1)
            tokens.append(Token("else if", test[2] or "Role", test[3]) if test else Token("else"))
        elif text == "end" and blocks:
            blocks.pop()
            tokens.append(Token("end"))
        elif (text == "end" and inside) or (RANGE.fullmatch(text) and len(parts) == 1 and not blocks):
            parts.append([])
        elif text == "continue" and inside:
            tokens.append(Token("continue"))
        else:
            shown = text if len(text) <= 60 else f"{text[:60]}…"
            raise GoTemplateError(line, f"{{{{ {shown} }}}} is not supported here; {INSTEAD}")
    if blocks or len(parts) == 2:
        raise GoTemplateError(blocks[-1][0] if blocks else 1, "this `if` or `range` has no {{ end }}; add {{ end }}")
    if len(parts) == 3 and any(token.kind != "text" and token.text == "Prompt" for token in (*parts[0], *parts[2])):
        raise GoTemplateError(1, ".Prompt is empty in a template with .Messages; use .Content inside the range")
    return GoTemplate(*parts)


def _split(template: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, is_action) for each piece of a template. Texts are trimmed. Actions are without braces."""
    text, *pieces = template.split("{{")
    line, trim = 1, False
    for piece in pieces:
        action, closed, following = piece.partition("}}")
        start = line + text.count("\n")
        if not closed:
            raise GoTemplateError(start, "{{ is not closed; write }} after the action")
        kept = text.lstrip(BLANKS) if trim else text
        left = action[:1] == "-" and action[1:2] in BLANKS
        yield line, kept.rstrip(BLANKS) if left else kept, False
        line, text = start + action.count("\n"), following
        trim = action[-1:] == "-" and action[-2:-1] in BLANKS
        yield start, action[left : len(action) - trim].strip(BLANKS), True
    yield line, text.lstrip(BLANKS) if trim else text, False


def _render(tokens: Sequence[Token], data: Mapping[str, str]) -> str:
    parts: list[str] = []
    branches: list[str] = []
    """The state of each open ``if``: ``waiting`` before the chosen branch, ``taken`` inside it, ``over`` after it."""
    for token in tokens:
        writes = not branches or branches[-1] == "taken"
        if token.kind in ("if", "else if", "else"):
            holds = token.kind == "else" or (
                data[token.text] == token.role if token.role is not None else data[token.text]
            )
            if token.kind != "if":
                writes = branches.pop() == "waiting"
            branches.append("over" if not writes else "taken" if holds else "waiting")
        elif token.kind == "end":
            branches.pop()
        elif writes and token.kind == "continue":
            break
        elif writes:
            parts.append(token.text if token.kind == "text" else data[token.text])
    return "".join(parts)
