"""How does a source become a file? Read as a draft, compared, given examples, checked like every template, written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.cli.comparing import rendered_by
from gateway.cli.importing_verdict import Verdict, judge
from gateway.cli.options import NotFound
from gateway.config import yaml
from gateway.config.chat_folders import TEMPLATES, chat_template_in, read_reference
from gateway.config.files import Files
from gateway.config.names import FILE_NAME, shown
from gateway.config.templates import CHAT, read_template
from gateway.core.dialogue import Dialogue
from gateway.core.errors import ConfigError, GatewayError, Problem, RequestError
from gateway.importer import hugging
from gateway.importer.draft import SUBSETS, TOOLS, Draft, Reference
from gateway.importer.fastchat import read_fastchat
from gateway.importer.kinds import kind_of
from gateway.importer.lazyllm import read_lazyllm
from gateway.importer.ollama import read_ollama
from gateway.importer.opencompass import read_opencompass
from gateway.importer.source import MOST_BYTES, Source
from gateway.importer.written import written
from gateway.template.base import Template
from gateway.template.build import build, dialogue_of
from gateway.template.parity.sides import chat_reference
from gateway.template.prompter.template import slots_in
from gateway.template.spec import Example, TemplateSpec

STDOUT = "-"
MODELFILE = "Modelfile"
FOLDER = "meta_templates"

TALKS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "1+1=?"),),
    (("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?")),
    (("system", "Answer with a number."), ("user", "1+1=?")),
    (("system", "Answer with a number."), ("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?")),
)
"""The conversations of the examples; those that the reference is not asked for, or refuses, are left out."""
MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of a command line."""

    source: Path
    kind: str
    name: str | None
    out: str | None
    force: bool
    model: str | None
    form: str
    without: tuple[str, ...]
    marks_of: str
    turns: str


@dataclass(frozen=True, slots=True)
class Made:
    """A template file that has been checked."""

    name: str
    """Also of the folder for what lies beside."""
    text: str
    beside: tuple[tuple[str, bytes], ...]
    told: tuple[str, ...]
    """For standard error: the verdict, and what was not carried over."""


# ---------------------------------------------------------------- reading


def read_drafts(asked: Asked) -> list[Draft]:
    """The drafts of a source, chosen and named. Raises ``NotFound`` or ``ConfigError``."""
    path = _file_of(asked)
    source = _source(path)
    kind = kind_of(source) if asked.kind == "auto" else asked.kind
    _check_words(asked, kind)
    match kind:
        case "hf":
            drafts = [_from_folder(source, path, asked)]
        case "opencompass":
            drafts = read_opencompass(source, turns=asked.turns)
        case "lazyllm":
            drafts = read_lazyllm(source, marks_of=asked.marks_of)
        case "ollama":
            drafts = [read_ollama(source, subset=asked.without)]
        case _:
            drafts = read_fastchat(source, subset=asked.without)
    drafts = [replace(draft, name=_as_name(draft.name)) for draft in drafts]
    return _named(_chosen(drafts, asked), asked)


def _check_words(asked: Asked, kind: str) -> None:
    """Words that mean nothing for a kind are refused, not passed over."""
    for given, option, kinds in (
        (asked.marks_of, "--marks-of", ("lazyllm",)),
        (asked.form != "jinja", "--as", ("hf",)),
        (asked.turns != "natural", "--turns", ("opencompass",)),
        (asked.without and asked.form == "jinja" and kind == "hf", "--without", ("hf with --as meta",)),
        (asked.without, "--without", ("hf", "ollama", "fastchat")),
    ):
        if given and kind not in kinds:
            raise NotFound(f"{option} is for {', '.join(kinds)}, and {asked.source} is read as {kind}")


def _file_of(asked: Asked) -> Path:
    path = asked.source
    if not path.exists():
        raise NotFound(f"{path}: no such file or folder")
    if not path.is_dir():
        return path
    file = chat_template_in(path) if asked.kind in ("auto", "hf") else None
    if file is None and asked.kind in ("auto", "ollama") and (path / MODELFILE).is_file():
        file = path / MODELFILE
    if file is None:
        raise NotFound(f"{path} holds no chat template ({', '.join(TEMPLATES)}) and no {MODELFILE}: name the file")
    return file


def _source(path: Path) -> Source:
    folder = Path(os.path.realpath(path.parent))

    def beside(name: str) -> bytes | None:
        below = folder / name
        if not Path(os.path.realpath(below)).is_relative_to(folder) or not below.is_file():
            return None
        return _read(below)

    return Source(str(path), _read(path), beside, _parse)


def _read(path: Path) -> bytes:
    """A regular file's bytes, up to a byte more than is ever read."""
    most = 64 * MOST_BYTES if path.suffix == ".json" else MOST_BYTES
    if not path.is_file():
        raise NotFound(f"{path} is no file")
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise NotFound(f"{path} cannot be read ({error.strerror or error})") from None


def _parse(data: bytes, name: str) -> Any:
    document = yaml.parse(data, name)
    if document.problems:
        raise ConfigError(document.problems)
    return document.value


def _chosen(drafts: list[Draft], asked: Asked) -> list[Draft]:
    if asked.model is None:
        return drafts
    wanted = _as_name(asked.model.lower())
    found = [draft for draft in drafts if draft.name == wanted]
    if not found:
        raise NotFound(f"no model {shown(asked.model)} in {asked.source}: {', '.join(draft.name for draft in drafts)}")
    if len(found) > 1:
        raise NotFound(f"{len(found)} models in {asked.source} are called {shown(asked.model)}: give each its own abbr")
    return found


def _as_name(text: str) -> str:
    """A name as files have it."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:64] or "imported"


def _wanted(asked: Asked) -> str | None:
    """The name that a person gave, by itself or as that of the file."""
    if asked.name is not None or asked.out is None or asked.out == STDOUT or _is_folder(asked.out):
        return asked.name
    return Path(asked.out).stem


def _is_folder(out: str) -> bool:
    return out.endswith(("/", os.sep)) or Path(out).is_dir()


def _named(drafts: list[Draft], asked: Asked) -> list[Draft]:
    wanted = _wanted(asked)
    if asked.name is not None and len(drafts) > 1:
        raise NotFound(f"--name is for one template, and there are {len(drafts)}: choose by --model one of "
                       f"{', '.join(draft.name for draft in drafts)}")  # fmt: skip
    drafts = [replace(draft, name=wanted) if wanted and len(drafts) == 1 else draft for draft in drafts]
    names = [draft.name for draft in drafts]
    for name in names:
        if not FILE_NAME.fullmatch(name) or name == CHAT.name:
            raise NotFound(f'{shown(name)} is no name for a template: lower-case letters, digits, ".", "_" and "-", '
                           f'and not "{CHAT.name}"')  # fmt: skip
        if names.count(name) > 1:
            raise NotFound(
                f"several templates would be called {shown(name)}: give the models names of their own (abbr)"
            )
    return drafts


# ---------------------------------------------------------------- tokenizer folders


def _from_folder(source: Source, path: Path, asked: Asked) -> Draft:
    folder = hugging.read_folder(source)
    spec = read_reference(path, None, {})
    name = _wanted(asked) or _as_name(path.parent.absolute().name)
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
    from gateway.template.jinja.template import JinjaTemplate

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
        dialogue = _asking(messages)
        if open_turn or reference.whole is None:
            return reference.render(dialogue)
        return reference.whole(dialogue)

    return say


# ---------------------------------------------------------------- making


def places_of(asked: Asked, drafts: Sequence[Draft]) -> list[Path | None]:
    """Where each file goes; None: standard output. Raises ``NotFound`` before anything is written."""
    out = asked.out
    if out == STDOUT:
        places: list[Path | None] = [None]
    elif out is None or _is_folder(out):
        places = [Path(out or FOLDER) / f"{draft.name}.yaml" for draft in drafts]
    else:
        places = [Path(out)]
        if Path(out).suffix not in (".yaml", ".yml"):
            raise NotFound(f"--out {out}: a template's file ends in .yaml; a folder's name ends in /")
    if len(places) < len(drafts):
        raise NotFound(f"there are {len(drafts)} templates in {asked.source}: give a folder as --out, or choose by "
                       f"--model one of {', '.join(draft.name for draft in drafts)}")  # fmt: skip
    for draft, place in zip(drafts, places, strict=True):
        taken = [] if place is None else [place, *([place.parent / draft.name] if draft.beside else [])]
        for path in taken:
            if os.path.lexists(path) and not asked.force:
                raise NotFound(f"{path} is there already: --force overwrites it, --name or --out writes elsewhere")
    return places


def made(draft: Draft) -> Made:
    """The file, compared and checked. Raises ``ConfigError`` for what cannot be written exactly."""
    with tempfile.TemporaryDirectory(prefix="gateway-import-") as scratch:
        spec = _checked(draft, written(draft), Path(scratch))
        template = build(spec)
        reference = draft.reference or (draft.port(spec) if draft.port is not None else None)
        examples = _examples(template, reference, draft)  # first, because a template that never ends stops here
        verdict = judge(template, reference, draft)
        if not verdict.exact:
            raise ConfigError((Problem(draft.origin, 0, "", "\n  ".join(verdict.lines)),))
        whole = replace(draft, keys={**draft.keys, "examples": examples})
        lines = _said(verdict, reference, template)
        text = written(whole, lines)
        _checked(whole, text, Path(scratch))
    told = [f"{draft.name}: imported from {draft.origin}", *lines, *[f"note: {note}" for note in draft.notes]]
    return Made(draft.name, text, draft.beside, tuple(told))


def _checked(draft: Draft, text: str, scratch: Path) -> TemplateSpec:
    """Read the file as ``gateway check`` does, with what lies beside it; its values must be those of the draft."""
    path = scratch / f"{draft.name}.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    (scratch / draft.name).mkdir(exist_ok=True)
    for name, data in draft.beside:
        (scratch / draft.name / name).write_bytes(data)
    files = Files(scratch)
    spec = read_template(files, path, draft.name, files.blame(path))
    if spec is None:
        raise ConfigError(
            tuple([replace(problem, file=f"{draft.origin}: made of it", line=0) for problem in files.in_order()])
        )
    kept = yaml.parse(path.read_bytes(), path.name).value
    if kept != _plain(draft.keys):
        raise GatewayError(f"{draft.origin}: the file that was made does not hold what was read")
    return spec


def _plain(value: Any) -> Any:
    """Tuples as lists, as YAML gives them back."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _examples(template: Template, reference: Reference | None, draft: Draft) -> list[dict[str, Any]]:
    """Examples that the reference vouches for. Raises ``ConfigError`` where no conversation can be rendered at all."""
    examples: list[dict[str, Any]] = []
    refusals: list[str] = []
    for talk in TALKS:
        messages = [{"role": role, "content": content} for role, content in talk]
        if reference is not None and any(one.holds(_asking(messages)) for one in reference.excluded):
            continue
        for variables in _variables(template.spec):
            try:
                examples.append(_example(template, reference, messages, variables))
                break
            except GatewayError as error:  # what the source does not take is no example
                refusals.append(error.message)
    if not examples:
        told = refusals[0] if refusals else "the source vouches for none of them"
        raise ConfigError((Problem(draft.origin, 0, "", f"no conversation can be shown as an example: {told}"),))
    return examples[:MOST_EXAMPLES]


def _variables(spec: TemplateSpec) -> list[dict[str, str]]:
    """What a request may bring for the slots of a prompter: nothing, or a text for each."""
    if spec.prompter is None:
        return [{}]
    slots = [slot for slot in slots_in(spec.prompter) if slot != spec.prompter.input_slot]
    return [{}, {slot: f"(the {slot})" for slot in slots}] if slots else [{}]


def _asking(messages: Sequence[Mapping[str, str]], variables: Mapping[str, str] | None = None) -> Dialogue:
    return dialogue_of(Example(tuple(messages), variables=variables or {}))


def _example(
    template: Template, reference: Reference | None, messages: list[dict[str, str]], variables: dict[str, str]
) -> dict[str, Any]:
    dialogue = _asking(messages, variables)
    prompt = template.render(dialogue)
    example: dict[str, Any] = {"messages": messages, **({"variables": variables} if variables else {})}
    if prompt.messages is not None:
        return {**example, "sent": [dict(message) for message in prompt.messages]}
    return {**example, "prompt": reference.render(dialogue) if reference is not None else prompt.text}


def _said(verdict: Verdict, reference: Reference | None, template: Template) -> list[str]:
    lines = list(verdict.lines)
    if reference is not None:
        lines.append(f"The prompts of the examples were written by {reference.title}.")
    for variables in _variables(template.spec):
        with suppress(GatewayError):
            stops = template.render(_asking(({"role": "user", "content": "1+1=?"},), variables)).stops
            ends = ", ".join([repr(stop) for stop in stops]) or "no text that is known: write stop"
            return [*lines, f"Answers end at: {ends}"]
    return lines


# ---------------------------------------------------------------- writing


def write(one: Made, place: Path, *, force: bool) -> None:
    """The file and what lies beside it; the YAML last, so that it never names what is not there."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for name, data in one.beside:
            folder = place.parent / one.name
            folder.mkdir(exist_ok=True)
            _put(folder / name, data, force=force)
        _put(place, one.text.encode("utf-8"), force=force)
    except OSError as error:
        raise NotFound(f"{place} cannot be written ({error.strerror or error})") from None


def _put(path: Path, data: bytes, *, force: bool) -> None:
    if not force:
        with path.open("xb") as file:
            file.write(data)
        return
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_bytes(data)
    os.replace(scratch, path)
