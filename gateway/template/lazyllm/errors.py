"""The error of a request that LazyLLM refuses."""

from __future__ import annotations

from gateway.core.errors import TemplateError


class PrompterError(TemplateError):
    """LazyLLM raises an exception here. The message has the exception's class and text, word for word."""

    def __init__(self, exception: str, text: str = "") -> None:
        super().__init__(f"{exception}: {text}")


def missing_key(name: str) -> PrompterError:
    """The error of looking up an absent key of a dictionary."""
    return PrompterError("KeyError", repr(name))
