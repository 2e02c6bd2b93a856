"""How does a dialogue become the string a local model was trained on? (``kind: meta``, ``turns: natural``)

Meta begin, every turn as begin + content + end, then the generating role's begin.
Meta ``end`` closes a finished conversation, so a prompt that awaits an answer never has it.
"""

from __future__ import annotations

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Notice, Prompt, Segment
from gateway.template.natural import NaturalOrder
from gateway.template.speakers import Speakers, check_dialogue, content_of, unread_fields
from gateway.template.spec import RoleSpec, TemplateSpec
from gateway.template.stops import stop_strings, stop_token_ids

_ORIGINS = tuple(f"messages[{number}]" for number in range(64))


def origin_of(number: int) -> str:
    """``messages[2]``, made once for the numbers that occur every day."""
    return _ORIGINS[number] if number < len(_ORIGINS) else f"messages[{number}]"


class MetaTemplate:
    """Renders dialogues into segments, messages in their own order."""

    def __init__(self, spec: TemplateSpec) -> None:
        generating = spec.generating
        if generating is None:
            raise ValueError("a meta template without a generating role passed the checks")
        self._spec = spec
        self._order = NaturalOrder(spec, Speakers(spec))
        self._opening = (Segment(spec.begin, "", "template", True),) if spec.begin else ()
        self._generate = Segment(generating.begin, generating.role, "generate", True)
        self._own_words = {entry: (_own_segments(entry), _own_notice(entry)) for entry in spec.round}
        self._stops = stop_strings(spec)
        self._stop_token_ids = stop_token_ids(spec)

    @property
    def spec(self) -> TemplateSpec:
        return self._spec

    def render(self, dialogue: Dialogue) -> Prompt:
        """One pass over the messages; see ``base.Template``."""
        check_dialogue(dialogue)
        segments = list(self._opening)
        notices: dict[Notice, None] = {}
        last = len(dialogue.messages) - 1 if dialogue.continue_final else -1
        for speaker, entry, number in self._order.turns(dialogue):
            if speaker is None:
                own, notice = self._own_words[entry]
                segments += own
                if notice is not None:
                    notices[notice] = None
                continue
            message, role, origin = dialogue.messages[number], speaker.role, origin_of(number)
            if role.begin:
                segments.append(Segment(role.begin, role.role, origin, True))
            segments.append(Segment(content_of(message, number, self._spec.media), role.role, origin, False))
            if role.end and number != last:
                segments.append(Segment(role.end, role.role, origin, True))
            if speaker.fallback_for:
                notices[fallback_notice(speaker.fallback_for, role, number)] = None
            for notice in unread_fields(message, number):
                notices[notice] = None
        if not dialogue.continue_final:
            segments.append(self._generate)
        return Prompt(
            segments=tuple(segments),
            stops=self._stops,
            stop_token_ids=self._stop_token_ids,
            bos=self._spec.bos,
            bos_text=self._spec.bos_text,
            notices=tuple(notices),
        )


def fallback_notice(wanted: str, role: RoleSpec, number: int) -> Notice:
    """Says that another role speaks this message."""
    return Notice("fallback_role", f"messages[{number}]: {wanted} spoken as {ascii(role.role)[1:-1]}")


def _own_segments(entry: RoleSpec | str) -> tuple[Segment, ...]:
    if isinstance(entry, str):
        return (Segment(entry, "", "template", True),)
    texts = (entry.begin, entry.prompt or "", entry.end)
    return tuple(Segment(text, entry.role, "template", True) for text in texts if text)


def _own_notice(entry: RoleSpec | str) -> Notice | None:
    return None if isinstance(entry, str) else Notice("default_prompt", ascii(entry.role)[1:-1])
