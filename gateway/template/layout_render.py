"""How is an ordinary conversation rendered? In one go: its texts put into the frame of its order.

Ordinary are plain messages without wishes, which are nearly all that come. A call of a function is a seventh of a
short prompt's time, so ``render`` makes none that it can spare; everything else takes the template's own way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from gateway.core.dialogue import NO_WISHES, Dialogue, PlainMessages
from gateway.core.prompt import Prompt
from gateway.template.layout import LayoutCache, PromptLayout, Roles


class FramedTemplate(ABC):
    """A template that knows the frames of ordinary conversations."""

    def __init__(self, lay_out: Callable[[Roles], PromptLayout | None]) -> None:
        """``lay_out``: the frame of an order of speakers; None where there is more to it than words and texts."""
        self._frames = LayoutCache(lay_out)
        self._latest = self._frames.latest

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        messages = dialogue.messages
        if dialogue.wishes is NO_WISHES and isinstance(messages, PlainMessages):
            roles = messages.roles
            try:
                known, frame = self._latest[len(roles)]
            except KeyError:
                known = frame = None
            if known != roles:
                frame = self._frames.found(roles)
            if frame is not None:
                if frame.around is not None:  # from here on it is ``frame.filled``, written out
                    text = messages.texts[0].join(frame.around)
                else:
                    pieces = frame.words.copy()
                    pieces[1::2] = messages.texts
                    text = frame.head + "".join(pieces)
                return Prompt(text, frame.manner, dialogue)
        return self._rendered(dialogue)

    @abstractmethod
    def _rendered(self, dialogue: Dialogue) -> Prompt:
        """``render`` for every dialogue."""
