"""The formats of local models, without a server: messages to the exact prompt, and a model's text to an answer.

The package imports nothing of ``gateway``. The public names are imported on first use; ``docs/metatemplate.md`` has
examples.

``library``          the calls that a program makes
``errors``           the errors of the package, without HTTP
``values``           conversation, prompt, events
``templates``        what all kinds of templates have in common
``meta``             ``kind: meta`` with ``turns: natural``, which keeps the order of the messages
``opencompass``      ``kind: meta`` with ``turns: opencompass``; and ``kind: base``, which joins the messages
``prompters``        ``kind: prompter``: the prompters of LazyLLM
``chat_templates``   ``kind: jinja``: the chat templates of Hugging Face
``datasets``         dataset prompts, which make the conversation of a row of a dataset
``markers``          markers of a template in texts of the input
``answers``          the text of a model: stops, reasoning, tool calls
``files``            files of templates and dataset prompts, and their checks
``tokenizer``        a model's tokenizer from a local file
``limited_process``  jobs in a subprocess with a time limit and a memory limit
``version``          the version
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metatemplate.version import VERSION as __version__

if TYPE_CHECKING:
    from metatemplate.errors import InputError, InvalidFile, MetaTemplateError
    from metatemplate.files.template_file import presets
    from metatemplate.library import ParsedAnswer, cut, diff, load, parse_answer, render
    from metatemplate.templates.base import Template
    from metatemplate.values.prompt import Prompt, Segment

_MODULES = {
    **dict.fromkeys(("InputError", "InvalidFile", "MetaTemplateError"), "metatemplate.errors"),
    **dict.fromkeys(("ParsedAnswer", "cut", "diff", "load", "parse_answer", "render"), "metatemplate.library"),
    **dict.fromkeys(("Prompt", "Segment"), "metatemplate.values.prompt"),
    "Template": "metatemplate.templates.base",
    "presets": "metatemplate.files.template_file",
}

__all__ = [
    "InputError",
    "InvalidFile",
    "MetaTemplateError",
    "ParsedAnswer",
    "Prompt",
    "Segment",
    "Template",
    "__version__",
    "cut",
    "diff",
    "load",
    "parse_answer",
    "presets",
    "render",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
