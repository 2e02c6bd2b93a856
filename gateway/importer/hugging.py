"""How does a model's tokenizer folder become a template? As its chat template itself, or as turns found by probing it.

``kind: jinja`` points at copies of the files that decide the prompt; a YAML that stands alone holds the template.
Nothing is guessed that the files do not say: how calls and thoughts are written is for a person to declare.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.importer.draft import Draft
from gateway.importer.source import MOST_BYTES, Source
from gateway.importer.turns import NotTurns, Say, infer
from gateway.template.check_jinja import GENERATION, TOKENIZER, TOKENS
from gateway.template.spec import JinjaSpec, TemplateSpec

TOKENS_MAP = "special_tokens_map.json"
"""Where older folders keep the special tokens."""
DAY = "the template writes the day: it stands still unless `clock` says otherwise (docs/chat-templates.md)"
DAY_FIXED = "the template writes the day, and turns cannot: the day of this import stands in them for good"
KEPT = ("chat_template", *TOKENS)
"""What of a tokenizer's configuration decides a prompt, beside the tokens that end it."""
ADDED = "added_tokens_decoder"


@dataclass(frozen=True, slots=True)
class Folder:
    """The files that matter."""

    source: Source
    """The one that holds the chat template."""
    files: Mapping[str, bytes]
    """All of them by name."""
    tokens: Mapping[str, str]
    """Special tokens that only the older file names."""
    notes: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name of the file with the template."""
        return self.source.name.replace("\\", "/").rsplit("/", 1)[-1]


def read_folder(source: Source) -> Folder:
    """The template's file and those beside it. Raises ``ConfigError``."""
    name = source.name.replace("\\", "/").rsplit("/", 1)[-1]
    files = {name: source.data}
    for other in (TOKENIZER, GENERATION):
        if other != name and (data := source.beside(other)) is not None:
            files[other] = data
    tokenizer = _object(source, TOKENIZER, files.get(TOKENIZER))
    notes: list[str] = []
    for large in [one for one, data in files.items() if len(data) > MOST_BYTES and one == TOKENIZER]:
        files[large] = _needed(tokenizer, _object(source, GENERATION, files.get(GENERATION)))
        notes.append(f"{large} is larger than {MOST_BYTES // 1024} KiB: the copy holds only what decides a prompt")
    if len(files[name]) > MOST_BYTES:
        source.text()  # says what is the matter
    older = _object(source, TOKENS_MAP, source.beside(TOKENS_MAP))
    tokens = {key: text for key in TOKENS if not _text(tokenizer.get(key)) and (text := _text(older.get(key)))}
    if TOKENIZER not in files:
        notes.append(f"no {TOKENIZER} beside it: special tokens and the end of an answer are not known; "
                     "write special_tokens and stop")  # fmt: skip
    return Folder(source, files, tokens, tuple(notes))


def as_jinja(folder: Folder, name: str, spec: TemplateSpec, *, alone: bool) -> Draft:
    """A template of ``kind: jinja``. ``alone``: the YAML is to hold the template itself, with no file beside it."""
    jinja = _jinja(spec)
    keys: dict[str, Any] = {"kind": "jinja", "description": f"The chat template of {name}."}
    notes = [*folder.notes, *_hints(jinja)]
    if alone:
        keys["template"] = jinja.sources[0][1]
        keys |= {"special_tokens": dict(jinja.special_tokens)} if jinja.special_tokens else {}
        keys |= _ends(jinja, notes, jinja.ends)
        if len(jinja.sources) > 1:
            notes.append("tool_use: the folder's second template, for requests with tools, has no place in one YAML; "
                         "import to a file instead")  # fmt: skip
    else:
        keys["file"] = f"{name}/{folder.file}"
        keys["sha256"] = hashlib.sha256(folder.files[folder.file]).hexdigest()
        keys |= {"special_tokens": dict(folder.tokens)} if folder.tokens else {}
    return Draft(
        name=name,
        origin=f"the chat template of {folder.source.short}",
        digest=folder.source.digest,
        keys=keys,
        notes=tuple(notes),
        beside=() if alone else tuple(folder.files.items()),
    )


def as_meta(folder: Folder, name: str, spec: TemplateSpec, say: Say, *, subset: tuple[str, ...] = ()) -> Draft:
    """A meta template with the turns of the chat template. Raises ``ConfigError`` where there are none.

    ``say`` renders the chat template.
    """
    jinja = _jinja(spec)
    bos = jinja.special_tokens.get("bos_token", "") if spec.bos == "text" else ""
    try:
        turns = infer(say, bos_text=bos, system="system" not in subset)
    except NotTurns as error:
        hint = "" if "system" in subset else ", or leave system messages out with --without system"
        raise folder.source.refuse(0, f"begin and end of roles cannot say this chat template: {error.message}. "
                                   f"Import it as it is (without --as meta){hint}") from None  # fmt: skip
    keys: dict[str, Any] = {"kind": "meta", "description": f"The turns of the chat template of {name}.", **turns.keys()}
    notes = [*folder.notes, *[DAY_FIXED if hint == DAY else hint for hint in _hints(jinja)]]
    keys |= _ends(jinja, notes, tuple([end for end in jinja.ends if end != turns.answer[1].strip()]))
    notes += turns.unended(keys.get("stop", []))
    if bos and keys.get("begin", "").startswith(bos):
        keys |= {"bos": "text", "bos_text": bos}
    return Draft(
        name=name,
        origin=f"the chat template of {folder.source.short}, its turns found by probing",
        digest=folder.source.digest,
        keys=keys,
        notes=tuple(notes),
        subset=subset,
    )


def _jinja(spec: TemplateSpec) -> JinjaSpec:
    if spec.jinja is None:
        raise ValueError("a chat template without its text passed the checks")
    return spec.jinja


def _ends(jinja: JinjaSpec, notes: list[str], texts: tuple[str, ...]) -> dict[str, Any]:
    keys: dict[str, Any] = {"stop": list(texts)} if texts else {}
    if len(jinja.end_ids) == 1:
        keys["eos_token_id"] = jinja.end_ids[0]
    elif jinja.end_ids:
        notes.append(f"{GENERATION} ends answers at the ids {list(jinja.end_ids)}: a template names one eos_token_id, "
                     "so their texts stand under stop")  # fmt: skip
    return keys


def _hints(jinja: JinjaSpec) -> list[str]:
    """What a chat template does that a file has to declare; never guessed from its text."""
    text = "\n".join(source for _, source in jinja.sources)
    hints = []
    if "tools" in text:
        hints.append("the template writes tools; to take them, declare how the model writes its calls, "
                     "`tools: {parser: …}` (docs/tools.md)")  # fmt: skip
    if "thinking" in text or "<think>" in text:
        hints.append("the template speaks of thinking: declare `thinking: {begin: …, end: …}`, "
                     "and under request_kwargs what a request may switch")  # fmt: skip
    if "strftime_now" in text:
        hints.append(DAY)
    return hints


def _needed(tokenizer: Mapping[str, Any], generation: Mapping[str, Any]) -> bytes:
    """A tokenizer's configuration without its thousands of tokens; those that end an answer stay."""
    ends = generation.get("eos_token_id")
    wanted = [str(one) for one in (ends if isinstance(ends, list) else [ends])]
    added = tokenizer.get(ADDED)
    kept = {key: tokenizer[key] for key in KEPT if key in tokenizer}
    if isinstance(added, dict):
        kept[ADDED] = {number: added[number] for number in wanted if number in added}
    return json.dumps(kept, ensure_ascii=False).encode()


def _object(source: Source, name: str, data: bytes | None) -> Mapping[str, Any]:
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise source.refuse(0, f"{name} beside it is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise source.refuse(0, f"{name} holds no JSON object")
    return value


def _text(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
