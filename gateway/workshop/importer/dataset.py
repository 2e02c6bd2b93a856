"""Makes prompt files from an OpenCompass or AISBench dataset config, one for each dataset.

The columns of ``reader_cfg`` and the templates of ``infer_cfg`` are kept unchanged (``docs/spec/opencompass.md`` 2, 3
and 9). The notes list all other keys. The example in a prompt file has values such as ``(the question)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.errors import ConfigError
from gateway.workshop.importer.draft import Draft, policy_default
from gateway.workshop.importer.python.values import PythonExpression
from gateway.workshop.importer.python_file import PythonFile, at_line, check_plain
from gateway.workshop.importer.source import Source
from metatemplate.datasets.answer_columns import certain_answers, note_on_answer, possible_answers
from metatemplate.datasets.messages import EXPAND
from metatemplate.datasets.multimodal import END_TAG, TAG_KINDS, TAGGED_COLUMN
from metatemplate.datasets.prompt import DatasetPrompt
from metatemplate.datasets.prompt_list import COLUMN_PATTERN, columns_in, without_markers
from metatemplate.datasets.template import SECTIONS
from metatemplate.datasets.validation import DATASET_TEMPLATES, TEMPLATE_KEYS, parse_prompt, without_template
from metatemplate.errors import MetaTemplateError
from metatemplate.values.json_values import texts_in_values
from metatemplate.values.words import shown

DATASETS, INFER, READER = "datasets", "infer_cfg", "reader_cfg"
PROMPT, ICE = "prompt_template", "ice_template"
MULTI_TURN = "MultiTurnPromptTemplate"
TEMPLATE_CLASSES = ("PromptTemplate", MULTI_TURN, "MMPromptTemplate", "RawPromptTemplate")
RAW_ICE_TOKEN = "</E>"
"""The default ``ice_token`` of a ``RawPromptTemplate``."""
READER_KEYS = ("input_columns", "output_column")
RETRIEVER_KEYS = ("ice_separator", "ice_eos_token")
RANDOM_SEED = 43
"""The default seed of a ``RandomRetriever``."""
EXAMPLE_ROWS = 2
"""The number of few-shot rows in an example. Two rows show the separator between them."""
FILL_NOTE = (
    "fill: once is the default and does not fill columns inside values; OpenCompass does; for the same behaviour, "
    "add fill: opencompass"
)
EXACT_NOTE = "fill: opencompass was added, because fill: once makes a different prompt for the example"

ROWS_HINT = "clients read the rows, and send the columns of a row as variables"
PLACES: Mapping[str, str] = {
    "type": ROWS_HINT,
    "path": ROWS_HINT,
    "name": ROWS_HINT,
    "eval_cfg": "clients score the answers",
    "reader_cfg.train_split": "this split contains the rows of the few-shot examples",
    "reader_cfg.test_split": ROWS_HINT,
    "reader_cfg.test_range": ROWS_HINT,
    "inferencer.max_out_len": policy_default("max_tokens"),
    "inferencer.stopping_criteria": "send in the request `stop: {value}`",
    "inferencer.generation_kwargs": "send these parameters in the request, or write them in a policy under params",
    "inferencer.infer_mode": "send in the request `gateway: {turns: {mode: {value}}}`",
    "inferencer.batch_size": "clients decide how many requests they send at once",
    "inferencer.max_seq_len": "set this context length when you start the engine",
}
"""Key of a dataset → where to set it, for the note about this key."""
INFERENCERS: Mapping[str, str] = {
    "GenInferencer": "",
    "MultiTurnGenInferencer": "",
    "PPLInferencer": "clients score the prompt of each label (POST /v1/loglikelihood)",
}
"""Class of an inferencer → the note about this class; empty if no note is needed."""


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset of the source file, or an ``infer_cfg`` or template outside a dataset, with its ``reader_cfg``."""

    name: str
    place: str
    """The dataset's place in the file, such as ``datasets[0]``; empty for JSON and YAML."""
    line: int
    entry: Mapping[str, Any]


def read_dataset(source: Source) -> list[Draft]:
    """Return a draft for each dataset. If the file has no datasets, return a draft for each ``infer_cfg``.

    Without both, the templates that are assigned to a name are used. Raises ``ConfigError`` if the file cannot be
    imported.
    """
    if not source.name.endswith(".py"):
        return [_Reader(source, one).draft() for one in _of_value(source)]
    file = PythonFile(source)
    not_read: list[str] = []
    found = find_datasets(file, source.stem, not_read)
    if not found:
        reasons = not_read or file.notes
        cause = f"{'; '.join(reasons)}; so " if reasons else ""
        raise source.refuse(
            0, f"{cause}the file has no dataset with a plain {INFER}, and no {INFER} or {PROMPT} outside a dataset"
        )
    drafts = [_Reader(source, one).draft() for one in found]
    return [replace(one, notes=(*one.notes, *file.notes), not_read=tuple(not_read)) for one in drafts]


def find_datasets(file: PythonFile, stem: str = "", not_read: list[str] | None = None) -> list[_Dataset]:
    """Return every dataset of a Python file; without datasets every named ``infer_cfg``, else every named template.

    ``stem``: the name for a dataset without ``abbr``. ``not_read`` gets a line for each dataset that was not read.
    """
    not_read = [] if not_read is None else not_read
    found = list(_listed(file, stem, not_read))
    not_read += [] if isinstance(file.names.get(DATASETS), list) else file.unread(DATASETS)
    found = found or list(_assigned(file, stem, INFER))
    if not found and not any(name.endswith(DATASETS) for name in file.names):
        found = list(_assigned(file, stem, PROMPT, ICE))
    return found


def _of_value(source: Source) -> Iterator[_Dataset]:
    value = source.value()
    if isinstance(value, dict) and (listed := [one for key, one in value.items() if key.endswith(DATASETS)]):
        value = value.get(DATASETS) or [entry for one in listed if isinstance(one, list) for entry in one]
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict) and INFER not in entry and any(key in entry for key in DATASET_TEMPLATES):
            entry = {INFER: entry}
        if not isinstance(entry, dict) or INFER not in entry:
            keys = " or ".join(DATASET_TEMPLATES)
            raise source.refuse(0, f"every dataset must be a mapping with {INFER}, or with {keys}")
        yield _Dataset(name=_abbr(entry, source.stem), place="", line=0, entry=entry)


def _listed(file: PythonFile, stem: str, not_read: list[str]) -> Iterator[_Dataset]:
    lists = {name: one for name, one in file.names.items() if isinstance(one, list)}
    # Without a list of this name, code assembles the datasets from other lists.
    names = [DATASETS] if lists.get(DATASETS) else [name for name in lists if name.endswith(DATASETS)]
    if not names:
        names = [name for name, one in lists.items() if any(isinstance(part, dict) and INFER in part for part in one)]
    seen: set[int] = set()
    for name in names:
        for number, entry in enumerate(lists[name]):
            place = f"{name}[{number}]"
            if not isinstance(entry, dict) or INFER not in entry:
                not_read.append(f"{place}: it is not a mapping with {INFER} but {shown(entry)}")
            elif id(entry) not in seen:
                seen.add(id(entry))
                yield _Dataset(name=_abbr(entry, stem), place=place, line=file.line(name), entry=entry)


def _assigned(file: PythonFile, stem: str, *keys: str) -> Iterator[_Dataset]:
    """Yield a dataset for each prefix of names that end in one of the keys, such as ``infer_cfg``."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in file.names.items():
        for key in keys:
            if name.endswith(key) and isinstance(value, dict):
                found.setdefault(name.removesuffix(key), {})[key] = value
                file.note_replaced(name)
    for prefix, parts in found.items():
        infer = parts.get(INFER, parts)
        entry, place = {INFER: infer, READER: file.names.get(prefix + READER, {})}, prefix + next(iter(parts))
        yield _Dataset(name=prefix.strip("_") or stem, place=place, line=file.line(place), entry=entry)


@dataclass(slots=True)
class _Reader:
    """Reads one dataset. The methods raise ``ConfigError`` for settings that a prompt file cannot express."""

    source: Source
    dataset: _Dataset
    keys: dict[str, Any] = field(default_factory=dict)
    """The keys of the prompt file so far."""
    notes: list[str] = field(default_factory=list)

    def draft(self) -> Draft:
        """Return the draft of the prompt file."""
        infer, reader = self._part(self.dataset.entry, INFER), self._part(self.dataset.entry, READER)
        inferencer = self._part(infer, "inferencer", "if it has gen_field_replace_token, add this key to the file")
        self._plain(self.dataset.entry, ("abbr",))
        short, place = self.source.short_name, self.dataset.place
        self.keys["description"] = f"Imported from the dataset config {short}."
        self.keys |= self._plain(reader, READER_KEYS)
        if isinstance(columns := self.keys.get("input_columns"), str):
            self.keys["input_columns"] = columns.split()
        self.keys |= self._plain(inferencer, ("gen_field_replace_token",))
        for key in reversed(DATASET_TEMPLATES):
            if infer.get(key) is not None:
                self.keys[key] = self._template(key, self._part(infer, key))
        has_place = any("ice_token" in self.keys.get(key, ()) for key in DATASET_TEMPLATES)
        unread = "" if has_place else "without an ice_token, it does not change the prompt"
        has_rows = self._read_retriever(self._part(infer, "retriever", unread), inferencer)
        self._read_inferencer(inferencer)
        self._add_notes("", self.dataset.entry, ("abbr", INFER, READER))
        self._add_notes(f"{READER}.", reader, READER_KEYS)
        self._add_notes("", infer, (*DATASET_TEMPLATES, "retriever", "inferencer"))
        self._check_answer()
        self._add_example(has_rows)
        return Draft(
            name=self.dataset.name.lower(),
            origin=f"the dataset config {short}" + (f", {at_line(place, self.dataset.line)}" if place else ""),
            sha256=self.source.sha256,
            keys=self.keys,
            notes=tuple(self.notes),
            examples_by="this gateway's own port of OpenCompass's and AISBench's templates",
            is_prompt=True,
        )

    def _refuse(self, message: str, key: str = "") -> ConfigError:
        what = f"{self.dataset.place}.{key}" if self.dataset.place and key else key or self.dataset.place
        return self.source.refuse(self.dataset.line, message, what)

    def _part(self, owner: Mapping[str, Any], key: str, unread: str = "") -> Mapping[str, Any]:
        """Return the mapping under a key; an empty mapping if the key is absent.

        ``unread``: the note about an expression whose value is not known; empty if such an expression is refused.
        """
        value = owner.get(key)
        if unread and isinstance(value, PythonExpression):
            self.notes.append(f"{key} was not read, because it is {shown(value)}; {unread}")
            return {}
        if isinstance(value, PythonExpression):
            raise value.refusal(key)
        if value is not None and not isinstance(value, dict):
            raise self._refuse("must be a mapping", key)
        return value or {}

    def _plain(self, owner: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
        """Return the given keys with their values, except ``None``, which OpenCompass treats as absent."""
        found = {key: owner[key] for key in keys if owner.get(key) is not None}
        for key, value in found.items():
            check_plain(value, key, self.source)
        return found

    def _add_notes(self, prefix: str, owner: Mapping[str, Any], known: Sequence[str]) -> None:
        for key, value in owner.items():
            if key not in known:
                place = PLACES.get(f"{prefix}{key}", "a prompt file cannot contain it").replace("{value}", shown(value))
                self.notes.append(f"{prefix}{key} = {shown(value)}: {place}")

    def _template(self, key: str, template: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of ``prompt_template`` or ``ice_template``."""
        name = _class(template) or TEMPLATE_CLASSES[0]
        if name not in TEMPLATE_CLASSES:
            raise self._refuse(f"the class {name} is not supported; use one of {', '.join(TEMPLATE_CLASSES)}", key)
        entry = self._plain(template, TEMPLATE_KEYS)
        self._plain(template, ("format_variables",))
        if "template" not in entry and "messages" not in entry:
            raise self._refuse(without_template({key: one for key, one in template.items() if key != "type"}), key)
        if isinstance(labels := entry.get("template"), dict) and not all(isinstance(one, str) for one in labels):
            entry["template"] = {str(one): value for one, value in labels.items()}
            self.notes.append(
                f"{key}: the labels {shown(list(labels))} were changed to texts; in rows of examples, "
                "write the answers as texts too"
            )
        messages = entry.get("messages", ())
        if name == MULTI_TURN:
            self.keys["multi_turn"] = True
        if any(isinstance(item, str) for item in messages):
            entry.setdefault("ice_token", RAW_ICE_TOKEN)
        if template.get("format_variables") is False and any(map(COLUMN_PATTERN.search, texts_in_values(messages))):
            raise self._refuse(
                "has format_variables=False, but the gateway always fills the columns of a prompt file; "
                "remove the columns or this argument",
                key,
            )
        if any(isinstance(item, dict) and isinstance(item.get("content"), list) for item in messages):
            self.notes.append(f"{key}: the gateway fills columns in content parts; OpenCompass does not fill them")
        self._add_notes(f"{key}.", template, ("type", "format_variables", *TEMPLATE_KEYS))
        return entry

    def _read_retriever(self, retriever: Mapping[str, Any], inferencer: Mapping[str, Any]) -> bool:
        """Return whether the prompts have few-shot examples.

        The config does not contain the rows of the examples, so a note describes how to supply these rows.
        """
        name = _class(retriever) or "ZeroRetriever"
        kept = ("ice_eos_token",) if name == "ZeroRetriever" else RETRIEVER_KEYS
        self.keys |= self._plain(retriever, kept)
        if name == "ZeroRetriever":
            self._add_notes("retriever.", retriever, ("type", *kept))
            return False
        self._add_notes("retriever.", retriever, ("type", *kept, "fix_id_list", "ice_num", "seed"))
        if name == "FixKRetriever":
            ids = retriever.get("fix_id_list", inferencer.get("fix_id_list"))
            rows, written = f"the rows {ids}", f"retriever: {{kind: fixed, ids: {ids}}}"
        elif name == "RandomRetriever":
            count, seed = retriever.get("ice_num", 1), retriever.get("seed", RANDOM_SEED)
            rows, written = f"{count} random rows", f"retriever: {{kind: random, count: {count}, seed: {seed}}}"
        else:
            rows, written = "rows chosen for each question", ""
        file = f"save this split as JSON Lines and add train_file and {written}, or " if written else ""
        self.notes.append(
            f"{name}: the examples are {rows} of the train split, which the config does not contain; {file}"
            "send the rows as examples with each request; without these rows, the prompt has no examples"
        )
        return True

    def _read_inferencer(self, inferencer: Mapping[str, Any]) -> None:
        name = _class(inferencer)
        if name and (note := INFERENCERS.get(name, "clients must make the calls of this inferencer")):
            self.notes.append(f"{name}: {note}")
        self._add_notes("inferencer.", inferencer, ("type", "gen_field_replace_token", "fix_id_list"))

    def _check_answer(self) -> None:
        """Add ``output_column`` if the config has none and the model's turn has one column; else add a warning."""
        try:
            spec = parse_prompt({**self.keys, "fill": "opencompass"}, name="imported", rows=lambda name: ())
        except MetaTemplateError as error:
            raise self._refuse(error.message) from None
        main, found = spec.prompt_template or spec.ice_template, certain_answers(spec)
        if len(found) == 1:
            self.keys = {"description": "", "output_column": found[0], **self.keys}
            note = "was added, because the config has none and the model answers there; its value is left out"
            self.notes.insert(0, f"output_column: {found[0]} {note}")
        elif main is not None and spec.output_column in columns_in(main.messages):
            self.notes.append(
                "the gateway leaves the answer out of the messages; OpenCompass does not; for the same "
                "prompt with the answer, add fill: opencompass"
            )
        elif possible := possible_answers(spec):
            self.notes.insert(0, f"output_column {note_on_answer(possible)}")

    # ---------------------------------------------------------------- the example

    def _add_example(self, has_rows: bool) -> None:
        """Check the keys and add an example. ``fill`` is set only if its default makes a different prompt."""
        try:
            once = _example({**self.keys, "fill": "once"}, has_rows)
            # In messages, the gateway leaves the answer out and fills content parts; notes name both differences.
            exact = (
                once
                if any("messages" in self.keys.get(key, ()) for key in DATASET_TEMPLATES)
                else _example({**self.keys, "fill": "opencompass"}, has_rows)
            )
        except MetaTemplateError as error:
            raise self._refuse(error.message) from None
        if exact != once:
            self.keys["fill"] = "opencompass"
        self.notes.append(FILL_NOTE if exact == once else EXACT_NOTE)
        if exact:
            self.keys["examples"] = [exact]
        named = {*self.keys.get("input_columns", ()), self.keys.get("output_column")}
        others = [name for name in columns_in([self.keys.get(key) for key in DATASET_TEMPLATES]) if name not in named]
        if others and "input_columns" in self.keys:
            texts = ", ".join([f"{{{name}}}" for name in others])
            self.notes.append(
                f"the template has {texts}, and input_columns does not: the prompt keeps the braces and "
                "the name, unless a request has a variable of this name. If it is a column, add it to "
                "input_columns"
            )


def _example(keys: Mapping[str, Any], has_rows: bool) -> dict[str, Any]:
    """Return an example for a prompt file with these keys; empty for a dialogue of several turns."""
    prompt = DatasetPrompt(parse_prompt(keys, name="imported", rows=lambda name: ()))
    if prompt.spec.multi_turn:
        return {}
    main, output = keys.get("prompt_template") or keys["ice_template"], prompt.spec.output_column
    columns = prompt.spec.input_columns or [
        name for name in columns_in([keys.get(key) for key in DATASET_TEMPLATES]) if name != output
    ]
    example: dict[str, Any] = {"variables": {name: f"(the {name})" for name in columns}}
    for message in main.get("messages", ()):
        if EXPAND in message and isinstance(message, dict):
            name = message[EXPAND]
            example["variables"][name] = [{"role": "user", "content": f"(the {name})"}]
    kinds = _part_kinds(main.get("template"))
    if kinds:
        pieces = [f"{tag}(the {column}){END_TAG}" for tag, (kind, column) in TAG_KINDS.items() if kind in kinds]
        example["variables"][TAGGED_COLUMN] = "".join(pieces)
    rows = None
    if has_rows:
        template = keys.get("ice_template", {}).get("template")
        labels = list(template) if isinstance(template, dict) and not template.keys() <= set(SECTIONS) else []
        rows = [
            {name: f"(the {name} of example {number + 1})" for name in [*columns, output] if name}
            for number in range(EXAMPLE_ROWS)
        ]
        for number, row in enumerate(rows if labels else ()):
            row[output] = labels[number % len(labels)]
        example["examples"] = rows
    if prompt.labels:
        made = prompt.candidates(example["variables"], rows)
        return {**example, "labels": {label: without_markers(items) for label, items in made.items()}}
    return {**example, "prompt": without_markers(prompt.generation(example["variables"], rows))}


def _part_kinds(template: Any) -> set[str]:
    """Return the kinds of content parts in the turns of a dialogue, such as ``image``."""
    turns = [turn for part in template.values() for turn in part] if isinstance(template, dict) else []
    return {kind for turn in turns if isinstance(turn, dict) for kind in turn.get("prompt_mm") or ()}


def _class(value: Mapping[str, Any]) -> str:
    """Return the class name in ``type`` without the module; empty if ``type`` has no class name."""
    found = value.get("type")
    if isinstance(found, PythonExpression):
        return found.last
    return found.rsplit(".", 1)[-1] if isinstance(found, str) else ""


def _abbr(entry: Mapping[str, Any], stem: str) -> str:
    abbr = entry.get("abbr")
    return abbr if isinstance(abbr, str) else stem
