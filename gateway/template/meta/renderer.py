"""How does a dialogue become the string a local model was trained on? (``kind: meta``, ``turns: natural``)

Meta begin, every turn as begin + content + end, then the generating role's begin.
Meta ``end`` closes a finished conversation, so a prompt that awaits an answer never has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue, Message, PlainMessages, RenderOptions
from gateway.core.prompt import Notice, Pieces, Prompt, PromptMetadata, Segment, SegmentLabel
from gateway.template.layout import LayoutCache, PromptLayout, Roles, spaced
from gateway.template.layout_render import FramedTemplate
from gateway.template.messages import RoleMapping, Speakers, check_dialogue, content_of, unread_fields
from gateway.template.meta.turn_order import NaturalOrder
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.stops import manner_of

KEPT = 256
"""Messages of one role whose marks are made once."""

Marks = tuple[SegmentLabel | None, SegmentLabel, SegmentLabel | None]
"""Of a message's begin, content and end."""

_ORIGINS = tuple(f"messages[{number}]" for number in range(KEPT))


def origin_of(number: int) -> str:
    """``messages[2]``, made once for the numbers that occur every day."""
    return _ORIGINS[number] if number < KEPT else f"messages[{number}]"


@lru_cache(maxsize=128)
def marks_of(role: str, begins: bool, ends: bool) -> tuple[Marks, ...]:
    """The marks of the first ``KEPT`` messages of a role; the same for all templates that call their roles the same."""
    return tuple([_marks(role, begins, ends, origin) for origin in _ORIGINS])


def _marks(role: str, begins: bool, ends: bool, origin: str) -> Marks:
    scaffold = (role, origin, True)
    return (scaffold if begins else None, (role, origin, False), scaffold if ends else None)


@dataclass(frozen=True, slots=True)
class Words:
    """What the template itself says at some place, and the notice it owes for that."""

    pieces: tuple[str, ...] = ()
    marks: tuple[SegmentLabel, ...] = ()
    notice: Notice | None = None


class Voice:
    """One OpenAI role as the template speaks it: what stands before a message and after it."""

    __slots__ = ("begin", "end", "fallback_for", "kept", "role")

    def __init__(self, speaker: RoleMapping) -> None:
        self.role = speaker.role
        self.begin = speaker.role.begin
        self.end = speaker.role.end
        self.fallback_for = speaker.fallback_for
        self.kept = marks_of(self.role.role, bool(self.begin), bool(self.end))
        """``marks`` of the first messages."""

    def marks(self, number: int) -> Marks:
        """The marks of begin, content and end of ``messages[number]``."""
        if number < KEPT:
            return self.kept[number]
        return _marks(self.role.role, bool(self.begin), bool(self.end), origin_of(number))


class MetaTemplate(FramedTemplate):
    """Renders dialogues into marked pieces, messages in their own order."""

    def __init__(self, spec: TemplateSpec) -> None:
        generating = spec.generating
        if generating is None:
            raise ValueError("a meta template without a generating role passed the checks")
        super().__init__(self._laid_out)
        self._open_frames: LayoutCache[PromptLayout | None] = LayoutCache(partial(self._laid_out, goes_on=True))
        self.spec = spec
        self._speakers = Speakers(spec)
        self._order = NaturalOrder(spec, self._speakers)
        self._voices = {role: Voice(speaker) for role, speaker in self._speakers.items()}
        self._around = {
            role: (voice.begin, voice.end)
            for role, voice in self._voices.items()
            if not (voice.fallback_for or self._order.speaks_for_itself)
        }
        """What stands around a message of each role of which there is nothing else to tell."""
        around = self._around.items()
        self._joints = {(role, other): end + begin for role, (_, end) in around for other, (begin, _) in around}
        """What stands between messages of two such roles."""
        self._opening = _words(spec.begin) if spec.begin else Words()
        self._generate = generating.begin
        self._generate_mark: SegmentLabel = (generating.role, "generate", True)
        self._own_words = tuple([_words(entry) for entry in spec.round])
        self._manner = manner_of(spec, self._segments)

    def _rendered(self, dialogue: Dialogue) -> Prompt:
        check_dialogue(dialogue)
        messages = dialogue.messages
        if isinstance(messages, PlainMessages):
            frame = (self._open_frames if dialogue.continue_final else self._frames).of(messages.roles)
            assert frame is not None  # a meta template lays every order out, or refuses it
            return Prompt(frame.filled(messages.texts), frame.manner, dialogue)
        return self._in_pieces(dialogue)

    def _laid_out(self, roles: Roles, goes_on: bool = False) -> PromptLayout:
        """What stands around the texts of such a conversation. Raises RoleNotSupported."""
        try:
            between = [self._joints[pair] for pair in pairwise(roles)]
            first, last = self._around[roles[0]], self._around[roles[-1]]
        except (KeyError, IndexError):  # a role that cannot speak or needs a notice, words of the template's, nobody
            return self._framed(roles, goes_on)
        end = "" if goes_on else last[1] + self._generate
        return PromptLayout([self.spec.begin + first[0], *between, end], self._manner)

    def _framed(self, roles: Roles, goes_on: bool) -> PromptLayout:
        """The same, of the conversation as it is written with no text at all."""
        length = len(roles)
        silent = PlainMessages(roles, [""] * length, [EMPTY_MAPPING] * length)
        empty = self._in_pieces(Dialogue(silent, RenderOptions(continue_final=goes_on)))
        assert isinstance(empty.source, Pieces)
        said = zip(empty.source.texts, empty.source.marks, strict=True)
        words, _ = spaced([text if mark is None or mark[2] else 0 for text, mark in said])
        return PromptLayout(words, empty.manner)

    def _segments(self, dialogue: Dialogue) -> tuple[Segment, ...]:
        return self._in_pieces(dialogue).segments or ()

    def _in_pieces(self, dialogue: Dialogue) -> Prompt:
        """What ``render`` gives, with everything that is to be told of it."""
        goes_on = dialogue.continue_final
        pieces = list(self._opening.pieces)
        marks: list[SegmentLabel | None] = list(self._opening.marks)
        notices: dict[Notice, None] = {}
        if self._order.speaks_for_itself:
            self._with_own_words(dialogue, pieces, marks, notices)
        else:  # messages and nothing between them, as in most templates
            voices = self._voices
            for number, message in enumerate(dialogue.messages):
                voice = voices.get(message.role)
                if voice is None:
                    raise self._speakers.refuse(message.role, number)
                if message.parts or voice.fallback_for or not message.text or len(message.raw) > 2:
                    self._say(message, number, pieces, marks, notices)
                else:
                    pieces += (voice.begin, message.text, voice.end)
                    marks += voice.kept[number] if number < KEPT else voice.marks(number)
        if goes_on:
            del pieces[-1], marks[-1]  # the last message's end
        else:
            pieces.append(self._generate)
            marks.append(self._generate_mark)
        return Prompt("".join(pieces), self._telling(notices), Pieces(tuple(pieces), tuple(marks)))

    def _telling(self, notices: Mapping[Notice, None]) -> PromptMetadata:
        return replace(self._manner, notices=tuple(notices)) if notices else self._manner

    def _with_own_words(
        self, dialogue: Dialogue, pieces: list[str], marks: list[SegmentLabel | None], notices: dict[Notice, None]
    ) -> None:
        said: set[int] = set()  # places whose notice is given
        for speaker, _, number in self._order.turns(dialogue):
            if speaker is not None:
                self._say(dialogue.messages[number], number, pieces, marks, notices)
                continue
            self._say_own(number, said, pieces, marks, notices)

    def _say_own(
        self,
        place: int,
        said: set[int],
        pieces: list[str],
        marks: list[SegmentLabel | None],
        notices: dict[Notice, None],
    ) -> None:
        """What the template itself says at this place of the round."""
        words = self._own_words[place]
        pieces += words.pieces
        marks += words.marks
        if words.notice is not None and place not in said:
            said.add(place)
            notices[words.notice] = None

    def _say(
        self,
        message: Message,
        number: int,
        pieces: list[str],
        marks: list[SegmentLabel | None],
        notices: dict[Notice, None],
    ) -> None:
        """One message, with all that is to be told of it."""
        voice = self._voices[message.role]
        pieces += (voice.begin, content_of(message, number, self.spec.media), voice.end)
        marks += voice.marks(number)
        if voice.fallback_for:
            notices[fallback_notice(voice.fallback_for, voice.role, number)] = None
        if message.raw:
            notices.update(dict.fromkeys(unread_fields(message, number)))


def fallback_notice(wanted: str, role: RoleSpec, number: int) -> Notice:
    """Says that another role speaks this message."""
    return Notice("fallback_role", f"messages[{number}]: {wanted} spoken as {ascii(role.role)[1:-1]}")


def _words(entry: RoleSpec | str) -> Words:
    """An entry of the round that no message fills."""
    if isinstance(entry, str):
        return Words((entry,), (("", "template", True),))
    texts = tuple([text for text in (entry.begin, entry.prompt or "", entry.end) if text])
    notice = Notice("default_prompt", ascii(entry.role)[1:-1])
    return Words(texts, ((entry.role, "template", True),) * len(texts), notice)
