"""What makes the chat template of a model's folder? Its texts by name, its tokens, and the tokens that end an answer.

The one reader of such folders: for templates of ``kind: jinja``, for ``gateway import`` and for ``gateway parity``. Its
rules are those of the tokenizers of ``transformers`` 5; ``tests/template/jinja/record_folders.py`` asks the package.
Where two files disagree, one is silently taken there; here that is told.

- ``chat_template.jinja`` is the template called ``default``, each file of ``additional_chat_templates/`` one of its
  own name (``default`` again, if there is such a file). Either goes before ``chat_template`` in
  ``tokenizer_config.json``, a text or a list of names and texts.
- ``chat_template.json`` and ``processor_config.json`` are for processors, which take these before any other.
- Special tokens stand in ``tokenizer_config.json``. Older folders, known by having no ``added_tokens_decoder`` in it,
  keep them in ``special_tokens_map.json``, which goes before; a null there takes a token away.
- The ids that end an answer stand in ``generation_config.json``, their texts in ``added_tokens_decoder``, in older
  folders in ``added_tokens.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname, join
from typing import Any

from gateway.core.dialogue import NOTHING
from gateway.core.errors import TemplateError
from gateway.template.chat_tokens import ADDED, GROUPS, TokenFiles, read_tokens, text_of
from gateway.template.problems import Problems, shown

Fetch = Callable[[str], bytes | None]
"""A file's bytes, by its path beside the template; None: there is none. Raises ``TemplateError`` if it may not be."""
Names = Callable[[str], Sequence[str]]
"""The names of the files in a folder beside the template; none: there is no such folder. Raises ``TemplateError``."""

TEMPLATE = "chat_template.jinja"
NAMED = "additional_chat_templates"
TOKENIZER = "tokenizer_config.json"
PROCESSORS = ("chat_template.json", "processor_config.json")
GENERATION = "generation_config.json"
TOKENS_MAP = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"

DEFAULT = "default"
KEY = "chat_template"
JINJA = ".jinja"
MISTAKEN = "file"
"""A name that ``transformers`` mistakes for ``chat_template.jinja`` itself."""

MOST_BYTES = 1024 * 1024
"""Of one file; a tokenizer's configuration with thousands of added tokens has a third of that."""

Templates = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """What a folder says."""

    templates: Templates = field(default=NOTHING)
    """By name; a single one is called ``default``."""
    tokens: Mapping[str, str] = field(default=NOTHING)
    """``bos_token`` … by name: the template's variables."""
    end_ids: tuple[int, ...] = ()
    """Ids of the tokens that end an answer."""
    ends: tuple[str, ...] = ()
    """Their texts, as far as the files know them."""
    used: tuple[str, ...] = ()
    """The files that decide all this, by their paths."""
    notes: tuple[str, ...] = ()
    """Where files disagree, and which one counts."""


def folder_of(name: str) -> str:
    """The model's folder of a template's file, which may be one of the named templates in it."""
    folder = dirname(name)
    return dirname(folder) if basename(folder) == NAMED else folder


def template_in(fetch: Fetch, names: Names) -> str | None:
    """The file of a folder that says which template is its default; None: it holds no template.

    Raises ``TemplateError`` if ``transformers`` would find named templates and no default one.
    """
    if fetch(TEMPLATE) is not None:
        return TEMPLATE
    named = _names_in(names(NAMED))
    if DEFAULT in named:
        return join(NAMED, DEFAULT + JINJA)
    if named:
        raise TemplateError(
            f"{NAMED}/ stands there without {TEMPLATE}, so transformers finds {', '.join(named)} and no default "
            f"template, whatever {TOKENIZER} says: name the file that is meant"
        )
    problems = Problems()
    for name in (TOKENIZER, *PROCESSORS):
        if _Reader(fetch, names, problems).object(name).get(KEY) is not None:
            return name
        if problems.found:
            raise TemplateError(problems.found[0].message)
    return None


def read_chat_files(name: str, fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """What the folder of a template's file says; what is wrong goes to ``problems``."""
    reader = _Reader(fetch, names, problems)
    if reader.data(name, needed=True) is None:
        return ChatFiles()  # what is not there has nothing beside it, and one complaint is enough
    folder = folder_of(name)
    templates = _templates(name, reader)
    config, older_map = reader.object(join(folder, TOKENIZER)), reader.object(join(folder, TOKENS_MAP))
    tokens = read_tokens(TokenFiles(config, older_map), names=(TOKENIZER, TOKENS_MAP), problems=problems)
    generation = reader.object(join(folder, GENERATION))
    end_ids = _end_ids(generation)
    known = config.get(ADDED)
    if tokens.older:
        known = {str(number): text for text, number in reader.object(join(folder, ADDED_TOKENS)).items()}
    texts = [text_of(known.get(str(one))) for one in end_ids] if isinstance(known, dict) else []
    used = [*_decides(name, reader), join(folder, TOKENIZER), join(folder, GENERATION)]
    if tokens.older:
        used += [join(folder, TOKENS_MAP), join(folder, ADDED_TOKENS)]
    return ChatFiles(
        templates=templates,
        tokens=tokens.texts,
        end_ids=end_ids,
        ends=tuple([text for text in texts if text]),
        used=tuple([path for path in dict.fromkeys(used) if reader.data(path) is not None]),
        notes=(*_disagreements(name, templates, reader), *tokens.notes),
    )


class _Reader:
    """Files as they are asked for, each complained of once."""

    def __init__(self, fetch: Fetch, names: Names, problems: Problems) -> None:
        self._fetch = fetch
        self._names = names
        self._problems = problems
        self._read: dict[str, bytes | None] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self.notes: list[str] = []

    def data(self, name: str, *, needed: bool = False) -> bytes | None:
        """A file's bytes; None: there is none, or it cannot be used."""
        if name not in self._read:
            self._read[name] = self._file(name, needed=needed)
        return self._read[name]

    def named(self, folder: str) -> tuple[str, ...]:
        """The names of the templates in ``additional_chat_templates/``."""
        try:
            return _names_in(self._names(join(folder, NAMED)))
        except TemplateError as error:
            self.complain(error.message)
            return ()

    def text(self, name: str) -> str:
        """A template's text."""
        try:
            return (self.data(name) or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            self.complain(f"{name} is not UTF-8 at byte {error.start}")
            return ""

    def object(self, name: str) -> Mapping[str, Any]:
        """A JSON object; empty: there is none."""
        if name not in self._objects:
            data = self.data(name)
            self._objects[name] = {} if data is None else self._parsed(name, data)
        return self._objects[name]

    def complain(self, message: str) -> None:
        """A problem with the files."""
        self._problems.add(("file",), message)

    def _file(self, name: str, *, needed: bool) -> bytes | None:
        try:
            data = self._fetch(name)
        except TemplateError as error:
            self.complain(error.message)
            return None
        if data is None and needed:
            self.complain(f"there is no {name} beside the template: the path begins at its folder")
        if data is not None and len(data) > MOST_BYTES:
            self.complain(f"{name} has more than {MOST_BYTES} bytes: copy what is needed into another")
            return None
        return data

    def _parsed(self, name: str, data: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            self.complain(f"{name} is no JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self.complain(f"{name} holds no JSON object")
            return {}
        return value


# ---------------------------------------------------------------- the templates


def _templates(name: str, reader: _Reader) -> Templates:
    if _is_default(name):
        return _texts_in(folder_of(name), reader)
    if not name.endswith(".json"):
        return {DEFAULT: reader.text(name)}
    value = reader.object(name)
    if value.get(KEY) is None:
        reader.complain(f"{name} has no {KEY}: name the file that holds it")
        return {}
    return _listed(name, value[KEY], reader)


def _is_default(name: str) -> bool:
    return basename(name) == TEMPLATE or (basename(dirname(name)) == NAMED and basename(name) == DEFAULT + JINJA)


def _texts_in(folder: str, reader: _Reader) -> Templates:
    """``chat_template.jinja`` and what stands beside it in ``additional_chat_templates/``."""
    texts: dict[str, str] = {}
    if reader.data(join(folder, TEMPLATE)) is not None:
        texts[DEFAULT] = reader.text(join(folder, TEMPLATE))
    for one in reader.named(folder):
        path = join(folder, NAMED, one + JINJA)
        if one == MISTAKEN:
            reader.complain(f"{path}: transformers mistakes a template of this name for {TEMPLATE}: rename it")
            continue
        text = reader.text(path)
        if one == DEFAULT and _plain(texts.get(DEFAULT, text)) != _plain(text):
            reader.notes.append(f"{TEMPLATE} is not used: {NAMED}/{DEFAULT}{JINJA} takes its place, as in transformers")
        texts[one] = text
    return texts


def _listed(name: str, value: Any, reader: _Reader) -> Templates:
    """The templates of a JSON file: a text, or several with names."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, dict):
        value = [{"name": one, "template": text} for one, text in value.items()]
    texts: dict[str, str] = {}
    for entry in value if isinstance(value, list) else (None,):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
            reader.complain(f"{name}: {KEY} must be a text, or a list of {{name, template}}")
            return {}
        if texts.get(entry["name"], entry["template"]) != entry["template"]:
            reader.notes.append(
                f"{basename(name)} holds {shown(entry['name'])} twice: the last one counts, as in transformers"
            )
        texts[entry["name"]] = entry["template"]
    return texts


def _decides(name: str, reader: _Reader) -> list[str]:
    """The files that hold the templates, the one that was named first."""
    if not _is_default(name):
        return [name]
    folder = folder_of(name)
    return [name, join(folder, TEMPLATE), *[join(folder, NAMED, one + JINJA) for one in reader.named(folder)]]


def _disagreements(name: str, templates: Templates, reader: _Reader) -> list[str]:
    """Other templates of the folder, and who takes them."""
    folder, own = folder_of(name), basename(name)
    if not _is_default(name) and own not in (TOKENIZER, *PROCESSORS):
        return reader.notes  # a template that a person has put there
    mine = TEMPLATE if _is_default(name) else own
    beside = {} if mine == TEMPLATE else {TEMPLATE: _texts_in(folder, reader)}
    for other in (TOKENIZER, *PROCESSORS):
        value = reader.object(join(folder, other)).get(KEY)
        if other != own and value is not None:
            beside[other] = _listed(other, value, reader)
    return [
        *reader.notes,
        *[_told(other, texts, mine) for other, texts in beside.items() if texts and not _same(texts, templates)],
    ]


def _told(other: str, texts: Templates, mine: str) -> str:
    """Who takes the other template."""
    if other == TEMPLATE and DEFAULT not in texts:
        other = f"{NAMED}/ ({', '.join(texts)})"
    says = f"{other} says something else than chat_template in {mine}"
    if mine == TEMPLATE:
        says = f"{other} holds another chat template than {mine}"
    if other in PROCESSORS:
        return f"{says}: this one is for tokenizers, the processors of transformers take that one"
    if mine == TEMPLATE:
        return f"{says}: it is not used, as in transformers"
    return f"{says}: the tokenizers of transformers take that one"


def _same(one: Templates, other: Templates) -> bool:
    return {name: _plain(text) for name, text in one.items()} == {name: _plain(text) for name, text in other.items()}


def _plain(text: str) -> str:
    """A text as Jinja takes it: one kind of line end, and none at the very end."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def _names_in(files: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted([file.removesuffix(JINJA) for file in files if file.endswith(JINJA)]))


# ---------------------------------------------------------------- the ends


def _end_ids(generation: Mapping[str, Any]) -> tuple[int, ...]:
    value = generation.get("eos_token_id")
    return tuple([one for one in (value if isinstance(value, list) else [value]) if type(one) is int and one >= 0])


def shortened(config: bytes, generation: bytes | None) -> bytes:
    """A tokenizer's configuration without its thousands of tokens: what decides a prompt, and where answers end.

    As it stands if it is not too large, or no JSON object: then it is for the reader to complain.
    """
    if len(config) <= MOST_BYTES:
        return config
    try:
        given, ends = json.loads(config), json.loads(generation or b"{}")
    except (ValueError, RecursionError):
        return config
    if not isinstance(given, dict) or not isinstance(ends, dict):
        return config
    kept = {key: value for key, value in given.items() if key == KEY or key.endswith("_token") or key in GROUPS}
    if isinstance(given.get(ADDED), dict):
        wanted = [str(one) for one in _end_ids(ends)]
        kept[ADDED] = {number: given[ADDED][number] for number in wanted if number in given[ADDED]}
    return json.dumps(kept, ensure_ascii=False).encode()
