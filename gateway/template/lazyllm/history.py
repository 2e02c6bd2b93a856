"""Earlier turns as text (``docs/spec/lazyllm.md`` 6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core.frozen import dataclass
from gateway.core.prompt import Segment
from gateway.template.lazyllm.dialects import PrompterDialect
from gateway.template.lazyllm.errors import PrompterError
from gateway.template.lazyllm.json5 import read_json5, write_json5
from gateway.template.lazyllm.segments import template_text
from gateway.template.lazyllm.tokens import SpecialTokens


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the request, as a prompter writes it."""

    number: int
    """Its index in the request."""
    role: str
    """``system``, ``developer``, ``user``, ``assistant`` or ``tool``."""
    content: str
    calls: Sequence[Mapping[str, Any]] = ()
    """The functions of an assistant's calls: ``{"name": …, "arguments": {…}}``."""

    @property
    def origin(self) -> str:
        """The origin of its segments."""
        return f"messages[{self.number}]"

    @property
    def text(self) -> Segment:
        """Its content as a segment."""
        return Segment(self.content, self.role, self.origin, False)


def pair_segments(pairs: Iterable[tuple[str, str]], tokens: SpecialTokens) -> Iterator[Segment]:
    """Turns that belong to the template: pairs of user and assistant text."""
    for user, assistant in pairs:
        for text in (tokens.soh, user, tokens.eoh + tokens.soa, assistant, tokens.eoa):
            yield template_text(text)


def turn_segments(turns: Sequence[Turn], tokens: SpecialTokens, dialect: PrompterDialect) -> Iterator[Segment]:
    """The request's earlier turns. Raises PrompterError for a dialect that takes no messages."""
    if turns and not dialect.modern:
        raise PrompterError("NotImplementedError", "Cannot transform json history to list now")
    around = {
        "user": (tokens.soh, tokens.eoh),
        "assistant": (tokens.soa, tokens.eoa),
        "tool": (tokens.soe or "", tokens.eoe or ""),
    }
    for turn in turns:
        begin, end = around[turn.role]
        yield Segment(begin, turn.role, turn.origin, True)
        yield turn.text
        for call in turn.calls:
            for text, is_token in _call_pieces(call, tokens):
                yield Segment(text, turn.role, turn.origin, is_token)
        yield Segment(end, turn.role, turn.origin, True)


def _call_pieces(call: Mapping[str, Any], tokens: SpecialTokens) -> Iterator[tuple[str, bool]]:
    """The pieces of a call; True for those of the template."""
    yield (tokens.tool_start_token or "") + "\n", True
    if tokens.tool_args_token:
        yield str(call["name"]), False
        yield tokens.tool_args_token, True
        yield write_json5(call["arguments"]), False
    else:
        yield str(call), False
    yield (tokens.tool_end_token or "") + "\n", True


# ---------------------------------------------------------------- results of tools

NOT_IN_JSON5 = ("\u2028", "\u2029", "\\ud", "\\uD")
"""JSON strings may hold these; LazyLLM's JSON5 reader refuses them."""


def printed_result(content: str) -> str:
    """A tool's result as LazyLLM prints it: ``str()`` of its JSON5 value, or the text as it is."""
    printed = printed_json(content)
    if printed is not None:
        return printed
    try:
        return str(read_json5(content.strip()))
    except ValueError:  # not JSON5, or a number with too many digits to print
        return content


def printed_json(content: str) -> str | None:
    """``printed_result`` of plain JSON, a hundred times as fast; None where only the JSON5 reader can decide."""
    if any(text in content for text in NOT_IN_JSON5):
        return None
    try:
        return str(json.loads(content))
    except (ValueError, RecursionError):
        return None
