"""How does a prompter refuse? With the reference's own exception class and message, carried by an error of ours."""

from __future__ import annotations

from gateway.core.errors import TemplateError


class PrompterError(TemplateError):
    """The reference raises here; ``kind`` and ``said`` are its exception's class and message, word for word."""

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(f"{kind}: {said}")
        self.kind = kind
        self.said = said


def missing_key(name: str) -> PrompterError:
    """What looking up an absent key of a dictionary raises."""
    return PrompterError("KeyError", repr(name))
