"""The exceptions of LazyLLM."""

from __future__ import annotations

from metatemplate.errors import TemplateFailure


class PrompterError(TemplateFailure):
    """A case in which LazyLLM raises an exception. The message contains the class and the text of the exception."""

    def __init__(self, exception: str, text: str = "") -> None:
        super().__init__(f"{exception}: {text}")
