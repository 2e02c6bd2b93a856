"""What messages does OpenCompass or AISBench make of a PromptList for an API model?

The API parser of ``specs/opencompass.md`` 5: ``{"role": api_role, "prompt": text}``,
neighbours merged. Three crashes of the reference are mended as its section 12 says:
``generate`` counts in rounds only, an empty result is a plain error, and text
beside content parts becomes a text part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.opencompass.dialect import OPENCOMPASS, Dialect
from gateway.template.opencompass.lm_parser import MODES, LMParser
from gateway.template.opencompass.prompt_list import PromptList, appended
from gateway.template.opencompass.sections import Closed, Lone, walk
from gateway.template.roles import Role, RoleTable, Turn, no_role

MESSAGE_ROLES = ("system", "user", "assistant")


class APIParser:
    """Turns prompts into lists of messages, as an API model's wrapper does."""

    def __init__(
        self, meta_template: Mapping[str, Any] | list[Any] | None = None, dialect: Dialect = OPENCOMPASS
    ) -> None:
        """Raises TemplateError for a meta template that the reference refuses at once."""
        self._dialect = dialect
        self._leading: list[Any] | None = None
        self._table: RoleTable | None = None
        self._begin: Any = None
        if not meta_template:
            return
        if isinstance(meta_template, list):
            self._leading = _leading_messages(meta_template, dialect)
        else:
            self._table = RoleTable(meta_template)
            self._begin = meta_template.get("begin")

    def parse(self, prompt: Any, mode: str = "gen") -> Any:
        """A string stays as it is; a PromptList becomes messages; a plain list or tuple, each of its elements.

        Raises TemplateError.
        """
        if self._dialect.takes_messages and _are_messages(prompt):
            return deepcopy(prompt) if self._leading is None else _merged_lists(self._leading, prompt)
        if isinstance(prompt, (list, tuple)) and not isinstance(prompt, PromptList):
            return [self.parse(one, mode) for one in prompt]
        if mode not in MODES:
            raise TemplateError(f"mode is gen or ppl, not {mode!r}")
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, PromptList):
            return self._list(prompt, mode)
        raise TemplateError(f"a prompt is a string, a PromptList or a list of them, not {type(prompt).__name__}")

    def _list(self, items: PromptList, mode: str) -> Any:
        if self._leading is not None:
            raise TemplateError("a meta template that is a list of messages takes only a list of messages")
        if self._table is None:
            return self._without_template(items)
        said = PromptList(merge_neighbours(message for _, message in self.messages(items, mode)))
        if not said:
            raise TemplateError("no message to send: nothing is said before the role that generates")
        if self._begin:
            said.insert(0, self._begin)
        return said

    def _without_template(self, items: PromptList) -> Any:
        text = LMParser().parse(items)
        if text or not self._dialect.takes_parts:
            return text
        parts: list[Any] = []
        for item in items:
            if isinstance(item, dict):
                parts.extend(item.get("prompt_mm", ()))
        return parts

    def messages(self, items: Sequence[Any], mode: str = "gen") -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """The messages before merging, each with the positions of the turns it was made of."""
        assert self._table is not None
        for met in walk(items):
            match met:
                case Lone(turn, item):
                    yield (item,), self._message(self._table.speaker(turn))
                case Closed(section, turns):
                    stops = mode == "gen" and section == "round"
                    for said in self._rounds(self._table, turns, stops=stops):
                        if said is None:
                            return
                        yield said

    def _rounds(
        self, table: RoleTable, turns: Sequence[tuple[int, Turn]], *, stops: bool
    ) -> Iterator[tuple[tuple[int, ...], dict[str, Any]] | None]:
        """The messages of one section; None where the model shall speak."""
        if not table.round:
            raise TemplateError("the meta template's round is empty; give it at least one role")
        rounds = _cut(table, turns)
        for number, one in enumerate(rounds):
            heard = {table.name_of(turn): item for item, turn in one}
            for entry in table.spoken_round([turn for _, turn in one]):
                if isinstance(entry, str):
                    raise TemplateError("a string in the meta round cannot be spoken by an API role; remove it")
                if stops and number == len(rounds) - 1 and entry.get("generate", False):
                    yield None
                    return
                item = heard.get(entry["role"])
                yield (() if item is None else (item,)), self._message(entry)

    def _message(self, role: Role) -> dict[str, Any]:
        if "api_role" not in role:
            raise TemplateError(f'role "{role.get("role")}" has no api_role; every role of an API template needs one')
        return {"role": role["api_role"], "prompt": self._prompt(role)}

    def _prompt(self, role: Role) -> Any:
        if self._dialect.takes_parts and "prompt" not in role and "prompt_mm" in role:
            return role["prompt_mm"]
        if self._dialect.prompt_required and "prompt" not in role:
            raise TemplateError(f'role "{role.get("role")}" has neither prompt nor prompt_mm')
        first, *others = (role.get(key, "") for key in ("begin", "prompt", "end"))
        for other in others:
            first = appended(first, other)
        return first


def _cut(table: RoleTable, turns: Sequence[tuple[int, Turn]]) -> list[list[tuple[int, Turn]]]:
    """As for string models, but a role outside the round takes the place of its fallback."""
    rounds: list[list[tuple[int, Turn]]] = [[]]
    last = -1
    for item, turn in turns:
        place = table.order.get(turn["role"], table.order.get(turn.get("fallback_role", ""), -1))
        if place < 0:
            raise no_role(turn)
        if place <= last:
            rounds.append([])
        rounds[-1].append((item, turn))
        last = place
    return rounds


def merge_neighbours(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbours of one role, empty ones too, with a line break between."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["prompt"] = _joined(merged[-1]["prompt"], message["prompt"])
        else:
            merged.append(dict(message))
    return merged


def _joined(first: Any, second: Any) -> Any:
    """Two prompts as one: texts with a line break between, or one list of content parts."""
    if isinstance(second, str):
        return appended(first, f"\n{second}")
    if isinstance(second, list) and isinstance(first, (str, list)):
        return [*(first if isinstance(first, list) else [{"type": "text", "text": first}]), *second]
    raise TemplateError("neighbours of one api_role cannot be joined: a prompt is neither text nor a list of parts")


def _leading_messages(meta_template: list[Any], dialect: Dialect) -> list[Any]:
    if not dialect.takes_messages:
        raise TemplateError("a meta template is a mapping with the key `round`, not a list")
    for message in meta_template:
        if not isinstance(message, dict) or message.get("role") not in MESSAGE_ROLES or "content" not in message:
            raise TemplateError(
                "a list as meta template holds messages with role system, user or assistant, and content"
            )
    return meta_template


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(item, (dict, str)) and "role" in item and "content" in item for item in prompt)
    )


def _merged_lists(leading: Sequence[Any], prompt: Sequence[Any]) -> list[Any]:
    """Meta messages laid over the prompt's: same role, contents joined; missing role, message inserted."""
    rest = [deepcopy(message) for message in prompt]
    if not all(isinstance(message, dict) for message in rest):
        raise TemplateError("a meta template that is a list of messages takes only a list of messages")
    out: list[Any] = []
    place = 0
    for message in leading:
        while place < len(rest) and rest[place]["role"] != message["role"] and _occurs(message, rest[place:]):
            out.append(rest[place])
            place += 1
        if place < len(rest) and rest[place]["role"] == message["role"]:
            out.append({**rest[place], "content": appended(message["content"], rest[place]["content"])})
            place += 1
        else:
            out.append(deepcopy(message))
    return out + rest[place:]


def _occurs(message: Mapping[str, Any], rest: Sequence[Mapping[str, Any]]) -> bool:
    return any(other["role"] == message["role"] for other in rest)
