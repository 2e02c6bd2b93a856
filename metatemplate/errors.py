"""All errors of ``metatemplate``.

MetaTemplateError
├── InputError              the conversation, its options or its variables must be changed
│   ├── InvalidInput        a value is wrong or missing
│   ├── UnsupportedInput    the template cannot write this kind of input
│   ├── ForbiddenInput      only the author of the template may set this value
│   ├── UnknownRole         the template cannot write this role
│   ├── UnsupportedMedia    the template cannot write this content part
│   ├── ForgedMarker        a text contains a marker of the template
│   └── LoneSurrogate       a text contains half of a character
├── TemplateFailure         a template, or the input of a template, breaks the template rules
├── RendererBusy            a subprocess is busy or has ended; the same call may succeed later
└── InvalidFile             a file cannot be used

An error states the fact, not its consequence: ``gateway.core.errors`` has the HTTP status and the code of each class.
Of an input's text, messages contain at most a short, escaped name.
"""

from __future__ import annotations

from dataclasses import dataclass


class MetaTemplateError(Exception):
    """Base class of all errors of the package."""

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """The path of the wrong value, such as ``messages[2].role``; None if no single value is wrong."""
        self.retry_after = retry_after
        """Seconds after which the same call may succeed; for ``RendererBusy`` only."""


class InputError(MetaTemplateError):
    """The input cannot be rendered. The same input would fail again."""


class InvalidInput(InputError):
    """A value has the wrong type, is out of range or is missing, or the template refuses the conversation."""


class UnsupportedInput(InputError):
    """The template does not accept this kind of input, such as tools."""


class ForbiddenInput(InputError):
    """The input has a value that only the author of the template may set."""


class UnknownRole(InputError):
    """The template cannot write a message of this role: the role, a mapping and a fallback are all missing."""


class UnsupportedMedia(InputError):
    """The input contains a content part that is not text, but the template accepts only text."""


class ForgedMarker(InputError):
    """A text of the input contains a marker of the template, and the marker rule refuses markers."""


class LoneSurrogate(InputError):
    """A text contains a lone surrogate, which no tokenizer can read."""


class TemplateFailure(MetaTemplateError):
    """A template, or the input of a template, breaks the template rules (``docs/spec/opencompass.md``)."""


class RendererBusy(MetaTemplateError):
    """Too many calls wait for a subprocess, or it was killed from outside. The input is not the cause."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: place, description and remedy."""

    file: str
    line: int
    """The line number from 1; 0 means the whole file."""
    key: str
    """Dotted path inside the file, such as ``models.my-model.template``; may be empty."""
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class InvalidFile(MetaTemplateError):
    """A file cannot be used. The error contains all problems found, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
