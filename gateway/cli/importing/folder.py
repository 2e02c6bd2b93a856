"""What is the draft of a tokenizer folder? Its chat template as it stands, or the turns that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.cli.importing.asked import STDOUT, Asked, as_name
from gateway.cli.importing.examples import asking
from gateway.cli.parity_sides import rendered_by
from gateway.config.chat_folders import read_chat_folder
from gateway.core.dialogue import Dialogue
from gateway.core.errors import RequestError
from gateway.importer import hugging
from gateway.importer.draft import SUBSETS, TOOLS, Draft, Reference
from gateway.importer.source import Source
from gateway.parity.sides import chat_reference
from gateway.template.registry import build
from gateway.template.spec.template import TemplateSpec


def from_folder(source: Source, path: Path, asked: Asked) -> Draft:
    """The template with the files it needs, or as turns. Raises ``ConfigError``."""
    read = read_chat_folder(path, variant=asked.variant)
    folder, spec = hugging.Folder(source, read.file, read.files, read.shortened, asked.variant), read.spec
    name = asked.wanted or as_name(read.folder.absolute().name)
    reference, others = _chat_reference(spec)
    if asked.form == "meta":
        draft = hugging.as_meta(folder, name, spec, _saying(reference), subset=asked.without)
        excluded = tuple([SUBSETS[word] for word in asked.without])
        return replace(draft, reference=replace(reference, excluded=(*excluded, *reference.excluded)))
    draft = hugging.as_jinja(folder, name, spec, alone=asked.out == STDOUT)
    if others:
        return replace(draft, reference=reference)
    return replace(draft, stands_for=reference.title)


def _chat_reference(spec: TemplateSpec) -> tuple[Reference, bool]:
    """The chat template as a reference, and whether somebody else than we renders it."""
    from gateway.template.huggingface.renderer import JinjaTemplate

    template, who = rendered_by(spec, "auto")
    side, bounded = chat_reference(template), build(spec)
    assert isinstance(bounded, JinjaTemplate)

    def render(dialogue: Dialogue) -> str:
        # The template may be a stranger's, and only our own rendering is bounded: what takes too long ends there.
        with suppress(RequestError):
            bounded.render(dialogue)
        return side.render(dialogue).text

    def whole(dialogue: Dialogue) -> str:
        with suppress(RequestError):
            bounded.whole(dialogue)
        return template.whole(dialogue)

    reference = Reference(f"the chat template ({who})", render, whole, spec.bos, excluded=(TOOLS,))
    return reference, not isinstance(template, JinjaTemplate)


def _saying(reference: Reference) -> Any:
    def say(messages: Sequence[Mapping[str, str]], open_turn: bool) -> str:
        dialogue = asking(messages)
        if open_turn or reference.whole is None:
            return reference.render(dialogue)
        return reference.whole(dialogue)

    return say
