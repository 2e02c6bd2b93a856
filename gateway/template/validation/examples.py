"""The form of the examples inside a template file. Their results are checked by ``registry.run_examples``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.spec import TemplateSpec
from gateway.template.validation.problems import Path, Problems


def check_examples(spec: TemplateSpec, problems: Problems) -> None:
    """Each example has messages, and the result that this kind of template makes."""
    makes_messages = spec.kind == "chat" or spec.api
    made = "messages, so write `sent`" if makes_messages else "a string, so write `prompt`"
    for number, example in enumerate(spec.examples):
        path: Path = ("examples", number)
        results = {"prompt": example.prompt, "sent": example.sent}
        right, wrong = ("sent", "prompt") if makes_messages else ("prompt", "sent")
        if results[wrong] is not None:
            problems.add((*path, wrong), f"this template makes {made}")
        elif results[right] is None:
            problems.add(path, f"an example without `{right}` checks nothing: add the expected result")
        if not example.messages:
            problems.add((*path, "messages"), "an example needs `messages`: add at least one {role, content}")
        for place, message in enumerate(example.messages):
            if isinstance(message, Mapping):
                _check_message(message, (*path, "messages", place), problems)


def _check_message(message: Mapping[str, Any], path: Path, problems: Problems) -> None:
    if not isinstance(message.get("role"), str):
        problems.add((*path, "role"), "a message needs a role: user, assistant, system …")
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for number, part in enumerate(content):
            texts = (part.get("type"), part.get("text", "")) if isinstance(part, Mapping) else (None,)
            if not all(isinstance(text, str) for text in texts):
                problems.add(
                    (*path, "content", number), "a part must be a mapping with `type`, and `text` if it is text"
                )
    elif content is not None and not isinstance(content, str):
        problems.add((*path, "content"), "content must be text or a list of parts: put text in quotes")
