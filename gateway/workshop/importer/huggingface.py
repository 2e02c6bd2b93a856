"""Makes a template from a model's tokenizer folder: the chat template itself, or turns found by probing.

A template of ``kind: jinja`` refers to copies of the files that affect the prompt. If the template is written to
standard output, it contains the chat template itself. The format of tool calls is found in a call that the template
writes. The files do not describe the format of reasoning, so the user must declare it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.workshop.importer.draft import SUBSETS, Draft, Reference
from gateway.workshop.importer.source import Source
from gateway.workshop.importer.turns import NotTurns, infer
from metatemplate.answers.tool_calls.registry import unread_calls
from metatemplate.chat_templates.folder import GENERATION, MOST_BYTES, TOKENIZER, TOKENS_MAP, TOOL_USE
from metatemplate.errors import MetaTemplateError
from metatemplate.templates.registry import build, dialogue_of
from metatemplate.templates.spec import Example, JinjaSpec, TemplateSpec
from metatemplate.values.words import listed, printable, shown

TOOLS_HINT = (
    "the chat template supports tools; to accept them, declare the format of the model's tool calls "
    "with `tools: {parser: …}` (gateway docs templates has those of today's families)"
)
TOOLS_FOUND = "the chat template writes calls in the format of `tools`, so the model's calls are read in this format"
CALL_IDS = ("functions.add:0", "call00001")
"""Two forms of a call's id: some chat templates write a call only with the first form, others only with the second."""
DAY = "the chat template writes a date, which is fixed unless `clock: now` is set (gateway docs chat-templates)"
THINKING_FIXED = "the chat template supports thinking; declare `thinking: {begin: …, end: …}`"
THINKING = f"{THINKING_FIXED}, and list under request_kwargs the variables that a request may set"
DAY_FIXED = "the chat template writes the current date, but the imported texts always contain the date of this import"


@dataclass(frozen=True, slots=True)
class ChatFolder:
    """The chat template of a model's folder."""

    spec: TemplateSpec
    """The chat template as a template of ``kind: jinja``."""
    folder: Path
    file: str
    """Path of the template's file, relative to the folder."""
    files: Mapping[str, bytes]
    """Relative path → contents, for every file that affects prompts. Large files are shortened."""
    shortened: tuple[str, ...]
    """The relative paths of the shortened files."""
    variant: str | None
    """The name of the chosen template, if the folder has several named templates."""

    @property
    def has_no_tokens(self) -> bool:
        """True: the folder has no file with special tokens."""
        return TOKENIZER not in self.files and TOKENS_MAP not in self.files

    def origin(self, source: Source) -> str:
        """Return a phrase for the header that names the chat template and its source."""
        which = f" {shown(self.variant)}" if self.variant else ""
        return f"the chat template{which} of {source.short_name}"


def as_jinja(folder: ChatFolder, source: Source, name: str, *, alone: bool) -> Draft:
    """Return a draft of ``kind: jinja``. ``alone``: the YAML contains the chat template and needs no other files."""
    jinja = folder.spec.jinja
    assert jinja is not None
    keys: dict[str, Any] = {"kind": "jinja", "description": f"The chat template of {name}."}
    notes = list(jinja.disagreements)
    if folder.has_no_tokens:
        notes.append(
            f"the folder has no {TOKENIZER}, so special tokens and the end of an answer are not known; "
            "write them under special_tokens and stop"
        )
    if alone:
        notes += [*_left_out(jinja, "to import them too, write to a file"), *_hints(jinja.sources[:1])]
        keys["template"] = jinja.sources[0][1]
        keys |= {"special_tokens": dict(jinja.special_tokens)} if jinja.special_tokens else {}
        keys |= _ends(jinja, notes, jinja.ends)
    else:
        notes += [
            f"{name} is larger than {MOST_BYTES // 1024} KiB; the copy contains only the values that affect prompts"
            for name in folder.shortened
        ]
        notes += [*jinja.choice, *_hints(jinja.sources)]
        keys["file"] = f"{name}/{folder.file}"
        keys["sha256"] = hashlib.sha256(folder.files[folder.file]).hexdigest()
        keys |= {"variant": folder.variant} if folder.variant else {}
    if tools := _tool_format(folder.spec):
        keys |= {"tools": {"parser": tools}}
        notes = [TOOLS_FOUND if note == TOOLS_HINT else note for note in notes]
    return Draft(
        name=name,
        origin=folder.origin(source),
        sha256=source.sha256,
        keys=keys,
        notes=tuple(notes),
        files=() if alone else tuple(folder.files.items()),
    )


def as_meta(
    folder: ChatFolder, source: Source, name: str, reference: Reference, *, subset: tuple[str, ...] = ()
) -> Draft:
    """Return a draft of a meta template. Raises ``ConfigError`` if the chat template cannot be written as turns."""
    jinja = folder.spec.jinja
    assert jinja is not None
    bos = jinja.special_tokens.get("bos_token", "") if folder.spec.bos == "text" else ""
    try:
        turns = infer(reference.side, bos_text=bos, system="system" not in subset)
    except NotTurns as error:
        raise error.refuse(source, 0, "", subset, "; to import the chat template itself, remove --as meta") from None
    keys: dict[str, Any] = {"kind": "meta", "description": f"The turns of the chat template of {name}.", **turns.keys()}
    notes = [*jinja.disagreements, *_left_out(jinja, "to import them too, remove --as meta")]
    if folder.has_no_tokens:
        notes.append(
            f"the folder has no {TOKENIZER}, so the BOS and the end of an answer are not known; "
            "write them under bos and stop"
        )
    instead = {DAY: DAY_FIXED, THINKING: THINKING_FIXED}
    notes += [instead.get(hint, hint) for hint in _hints(jinja.sources[:1])]
    keys |= _ends(jinja, notes, tuple([end for end in jinja.ends if end != turns.answer[1].strip()]))
    notes += turns.notes(keys.get("stop", []))
    if bos and keys.get("begin", "").startswith(bos):
        keys |= {"bos": "text", "bos_text": bos}
    return Draft(
        name=name,
        origin=f"{folder.origin(source)}, its turns found by probing",
        sha256=source.sha256,
        keys=keys,
        notes=tuple(notes),
        reference=replace(reference, excluded=(*[SUBSETS[word] for word in subset], *reference.excluded)),
    )


def _tool_format(spec: TemplateSpec) -> str:
    """Return the format in which the chat template writes tool calls; empty if it is not known, or one of several."""
    if spec.tools is None:
        return ""
    template, found = build(spec), set[str]()
    for call_id in CALL_IDS:
        call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 12}'}}
        messages = (
            {"role": "user", "content": "?"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "name": "add", "content": "46"},
        )
        with suppress(MetaTemplateError):
            found |= {*unread_calls(template.render(dialogue_of(Example(messages))).text)}
    return found.pop() if len(found) == 1 else ""


def _ends(jinja: JinjaSpec, notes: list[str], texts: tuple[str, ...]) -> dict[str, Any]:
    keys: dict[str, Any] = {"stop": list(texts)} if texts else {}
    if len(jinja.end_ids) == 1:
        keys["eos_token_id"] = jinja.end_ids[0]
    elif jinja.end_ids:
        notes.append(
            f"{GENERATION} has the end tokens {list(jinja.end_ids)}, but a template can have only one "
            "eos_token_id; check that stop lists the text of each end token"
        )
    return keys


def _left_out(jinja: JinjaSpec, hint: str) -> list[str]:
    """Return a note about the named templates that were not imported; no note if all were imported."""
    taken = jinja.sources[0][0]
    others = [name for name in jinja.names if name != taken]
    tools = f" (the folder uses {TOOL_USE} for requests with tools)" if len(jinja.sources) > 1 else ""
    note = f"only the chat template {printable(taken)} was imported, without {listed(others)}{tools}; {hint}"
    return [note] if others else []


def _hints(sources: Sequence[tuple[str, str]]) -> list[str]:
    """Return notes about features that the chat template uses and the template file must declare."""
    text = "\n".join([source for _, source in sources])
    found = {
        TOOLS_HINT: "tools" in text,
        THINKING: "thinking" in text or "<think>" in text,
        DAY: "strftime_now" in text,
    }
    return [hint for hint, applies in found.items() if applies]
