"""Reads DATA.jsonl. Each line that is not blank becomes one request to the gateway.

Without ``--send``, only fields of requests are sent. Other columns may be expected answers.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BufferedReader
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

import orjson

from gateway.backend.engines import ENGINES
from gateway.calls.admission.access import MAX_ROW, is_row_id
from gateway.calls.endpoints.table import ENDPOINTS
from gateway.cli.options import CommandError
from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import RunAnswer, RunRow
from gateway.evaluate.analysis.scores import RowScore
from gateway.policy.admit.media import FIELDS, PARTS
from gateway.wire.request_fields import FORBIDDEN, HINTS, ChatMessage, Sampling, TextPart
from metatemplate.templates.roles import FALLBACK_FIELD
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.words import counted, printable, quoted, suggest

REQUESTS: Mapping[str, Any] = {endpoint.path: resolve_name(endpoint.request) for endpoint in ENDPOINTS}
"""The path of an endpoint → the type of its request."""
USUAL_COLUMNS = frozenset({"documents", "grammar", "json_schema", "metadata", "regex"})
"""Fields of requests that are also usual names of columns in a dataset. They are sent only with ``--send``."""
OPERATOR_FIELDS = FORBIDDEN - HINTS
"""Fields that no request may have."""
ENGINE_FIELDS = (
    frozenset(name for engine in ENGINES.values() for name in engine.sampling | engine.chat if "." not in name)
    - USUAL_COLUMNS
)
"""The fields of engines that OpenAI's API does not have, such as ``top_k``."""
MESSAGE_FIELDS = (
    frozenset({"cache_control", "partial", "prefix", "provider_specific_fields", FALLBACK_FIELD})
    | FIELDS.keys()
    | ChatMessage.model_fields.keys()
)
"""The fields of a message: those that the gateway reads, those of answers, and those of providers."""
PART_FIELDS = frozenset({"cache_control", "detail", "file_id", "uuid"}).union(TextPart.model_fields, *PARTS.values())
"""The fields of a content part of any type."""


@cache
def fields_of(url: str) -> frozenset[str]:
    """Return the fields of a request to the endpoint with the path ``url``, a key of ``REQUESTS``."""
    request = REQUESTS[url]
    models = get_args(request) or (request,)
    fields = frozenset(name for model in models for name in model.model_fields) - USUAL_COLUMNS
    return fields | ENGINE_FIELDS if any(issubclass(model, Sampling) for model in models) else fields


def unknown_in_messages(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield place and name of each unknown key in the messages of a request and in their content parts."""
    candidates = body.get("candidates")
    conversations = {name: body.get(name) for name in ("messages", "context")}
    if isinstance(candidates, dict):
        conversations |= {f"candidates.{label}": value for label, value in candidates.items()}
    for where, messages in conversations.items():
        for place, message in _objects(where, messages):
            yield from [(place, name) for name in message if name not in MESSAGE_FIELDS]
            for inner, part in _objects(f"{place}.content", message.get("content")):
                yield from [(inner, name) for name in part if name not in PART_FIELDS]


def _objects(place: str, items: object) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a list with their places. Other items are left to the checks of the gateway."""
    if not isinstance(items, list):
        return []
    return [(f"{place}[{number}]", item) for number, item in enumerate(items) if isinstance(item, dict)]


CHAT_PATH, COMPLETIONS_PATH, LOGLIKELIHOOD_PATH = "/v1/chat/completions", "/v1/completions", "/v1/loglikelihood"

EVIDENCE: Mapping[str, Mapping[str, Any]] = {
    CHAT_PATH: {"logprobs": True, "top_logprobs": 2, "return_token_ids": True},
    COMPLETIONS_PATH: {"logprobs": 2, "return_token_ids": True},
}
"""URL → the fields that ask for the two likeliest tokens at each place of the answer, and for all token ids."""
LAST_TURN_FIELDS = frozenset(
    {
        "add_generation_prompt",
        "continue_final_message",
        "echo",
        "prompt_logprobs",
        "partial",
        "prefix",
    }
)
"""The fields of a request, and of its last message, that say what a last message of the assistant is for."""
BATCH_KEYS = {"custom_id", "method", "url", "body"}
"""The keys of a line of OpenAI's batch files."""
MOST_PROBLEMS = 10
"""The number of problems that are listed; the others are only counted."""


class RowProblem(ValueError):
    """Raised for a line that cannot become a request. The message does not contain the file or the line number."""


@dataclass(frozen=True, slots=True)
class DataRow:
    """One line as a request."""

    custom_id: str
    """The ``custom_id`` in the line, or ``line-N`` if the line has no ``custom_id``."""
    line: int
    """The number of the line, from 1."""
    url: str
    """The path of the endpoint, such as ``/v1/chat/completions``."""
    body: Mapping[str, Any]
    kept: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The columns that are copied to the output line."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """How a line becomes a request: the options of the command line."""

    model: str | None = None
    """The model for lines that do not name a model. None: every line must name a model."""
    prompt: str | None = None
    """The id of a dataset prompt, whose variables are in the line. None: the line is a request."""
    infer: str = "gen"
    """The kind of inference, a key of ``BY_INFERENCE``."""
    turns: str = "every"
    """The value of ``gateway.turns.mode`` for ``multiturn``."""
    examples: tuple[Mapping[str, Any], ...] = ()
    """The examples before the question. Empty: the dataset prompt chooses the examples."""
    params: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Fields of the request for lines that do not set them."""
    keep: tuple[str, ...] = ()
    """Columns that are copied to the output line. If the line is a request, the columns are not sent."""
    send: tuple[str, ...] = ()
    """Columns, and keys in messages, that are sent although no request has such a field."""
    evidence: bool = False
    """Whether every request asks for log probabilities and token ids (``EVIDENCE``)."""

    def row(self, number: int, value: dict[str, Any]) -> DataRow:
        """Return line ``number`` as a request. Raises ``RowProblem``."""
        custom_id = value.get("custom_id", f"line-{number}")
        if not isinstance(custom_id, str) or not custom_id or not is_row_id(custom_id):
            raise RowProblem(f"custom_id must be a text of 1 to {MAX_ROW} printable characters")
        columns = self.columns(value)
        kept = {name: columns[name] for name in self.keep if name in columns}
        url, body = _request(self, value)
        self._check_fields(url, body)
        body = self._with_params(body)
        if self.evidence:
            body = _with_evidence(url, body)
        if self.model is not None and body.setdefault("model", self.model) != self.model:
            raise RowProblem(f"the line names another model than --model {self.model}; remove one of them")
        if self.infer == "gen" and _ends_with_answer(body):
            where, more = ("messages", CONTINUE) if "messages" in body else ("input", "")
            raise RowProblem(ENDS_WITH_ANSWER.format(where) + more)
        if not isinstance(body.get("model"), str):
            raise RowProblem('the line names no model; give --model, or add "model" to the line')
        if body.get("stream"):
            raise RowProblem('a row cannot be streamed; remove "stream"')
        return DataRow(custom_id=custom_id, line=number, url=url, body=body, kept=kept)

    def _check_fields(self, url: str, body: Mapping[str, Any]) -> None:
        """Raise ``RowProblem`` for a column or a key that an engine would get, such as the expected answer."""
        allowed = fields_of(url) | (set(self.send) - OPERATOR_FIELDS)
        unknown = next((name for name in body if name not in allowed), None)
        if unknown is not None:
            raise RowProblem(_advice(printable(unknown), url))
        for place, name in unknown_in_messages(body):
            if name not in self.send:
                shown = printable(name)
                raise RowProblem(
                    f"{printable(place)}.{shown} is not a known field of a message, and may be an expected answer; "
                    f"remove it, or send it with --send {shown}"
                )

    def columns(self, value: dict[str, Any]) -> Mapping[str, Any]:
        """Return the columns that ``keep`` and ``send`` can name. A batch line has those of its body too."""
        body = value.get("body") if self.is_batch_line(value) else None
        return {**body, **value} if isinstance(body, dict) else value

    def is_batch_line(self, value: Mapping[str, Any]) -> bool:
        """Return whether a line is a line of OpenAI's batch files."""
        return self.prompt is None and self.infer == "gen" and "url" in value and "body" in value

    def _with_params(self, body: dict[str, Any]) -> dict[str, Any]:
        """Add the fields of ``params`` that a request lacks. The fields inside ``gateway`` are added separately."""
        given, own = self.params.get("gateway") or {}, body.get("gateway") or {}
        if not isinstance(given, dict) or not isinstance(own, dict):
            raise RowProblem('"gateway" must be an object')
        filled = body.keys() - {"gateway"} if self.prompt is not None else set[str]()
        made = own.keys() if self.prompt is not None else {"turns"} if self.infer == "multiturn" else set[str]()
        if clash := [*self.params.keys() & filled, *[f"gateway.{name}" for name in given.keys() & made]]:
            raise RowProblem(f"--param {min(clash)} is a field that --prompt or --infer sets; remove this --param")
        extension = {**given, **own}
        return {**self.params, **body, **({"gateway": extension} if extension else {})}


ENDS_WITH_ANSWER = (
    "{} ends with a message of the assistant, which may be the expected answer; move its text to a column of its "
    'own ("answer", with --keep answer) or remove it'
)
CONTINUE = ', or set "continue_final_message": true if the model must continue it, and false if it must answer after it'


def _ends_with_answer(body: Mapping[str, Any]) -> bool:
    """Return whether the model would get an answer that no field of the request asks for, as in data for training."""
    messages, extension = body.get("messages") or body.get("input"), body.get("gateway")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return False
    if isinstance(extension, dict) and "turns" in extension:  # the messages come before the questions
        return False
    return LAST_TURN_FIELDS.isdisjoint(body) and LAST_TURN_FIELDS.isdisjoint(last)


def _with_evidence(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the request with the fields of ``EVIDENCE``. Raises ``RowProblem`` if they cannot be added."""
    if url not in EVIDENCE:
        raise RowProblem(f"--evidence applies only to {' and '.join(EVIDENCE)}, not to {url}; remove the line")
    if clash := EVIDENCE[url].keys() & body.keys():
        raise RowProblem(f'--evidence sets "{min(clash)}", but the line or a --param sets it too; remove one of them')
    return {**body, **EVIDENCE[url]}


def _advice(name: str, url: str) -> str:
    """Return the message for a column that is not sent to ``url``, with the options for it."""
    keep = f"copy it to the output with --keep {name}"
    if name in OPERATOR_FIELDS:
        return f'"{name}" can only be set by the operator of the gateway; remove it, or only {keep}'
    what = f"is not a field of a request to {url}, and may be an expected answer"
    if name in USUAL_COLUMNS:
        what = "is a field of some requests, but may also be a column of the dataset"
    return f'"{name}" {what}; {keep}, or send it with --send {name}'


def _request(form: RowForm, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return URL and body of the request for a line."""
    if form.prompt is None:
        return BY_INFERENCE[form.infer](form, value)
    examples: dict[str, Any] = {"examples": list(form.examples)} if form.examples else {}
    prompt = {"id": form.prompt, "variables": value, **examples}
    if form.infer == "ppl":
        return LOGLIKELIHOOD_PATH, {"prompt": prompt}
    turns: dict[str, Any] = {"turns": {"mode": form.turns}} if form.infer == "multiturn" else {}
    return CHAT_PATH, {"gateway": {"prompt": prompt, **turns}}


def _generate(form: RowForm, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return URL and body of a request for an answer."""
    if form.is_batch_line(value):
        return _batch_line(form, value)
    if "messages" in value:
        return CHAT_PATH, _bare(form, value)
    if "prompt" in value:
        return COMPLETIONS_PATH, _bare(form, value)
    has = ", ".join(list(value)[:8]) or "nothing"
    needs = 'a request has "messages" or "prompt", a batch line "url" and "body"'
    raise RowProblem(f"the line has {has[:200]}; {needs}; for a row of a dataset give a dataset prompt with --prompt")


def _score(form: RowForm, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return URL and body of a request for the likelihood of each candidate."""
    if "candidates" not in value:
        raise RowProblem(
            'the line has no "candidates", which --infer ppl compares, such as {"A": "first answer", "B": "second '
            'answer"}; for a row of a dataset give a dataset prompt with --prompt'
        )
    return LOGLIKELIHOOD_PATH, _bare(form, value)


def _multiturn(form: RowForm, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return URL and body of a request for all answers of a dialogue."""
    body = _bare(form, value)
    turns = {"mode": form.turns} | {name: body.pop(name) for name in ("questions", "answers") if name in body}
    extension = body.get("gateway", {})
    if not isinstance(extension, dict):
        raise RowProblem('"gateway" must be an object')
    if "turns" in extension:
        raise RowProblem("--infer multiturn sets gateway.turns, but the line sets it too; remove one of them")
    return CHAT_PATH, {**body, "gateway": {**extension, "turns": turns}}


BY_INFERENCE: Mapping[str, Callable[[RowForm, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "gen": _generate,
    "ppl": _score,
    "multiturn": _multiturn,
}
"""Kind of inference → the function that returns the URL and the body for a line that is a request itself."""


def _bare(form: RowForm, value: dict[str, Any]) -> dict[str, Any]:
    """Return a line that is itself the body of a request, without the columns that are not sent."""
    return {name: field for name, field in value.items() if name != "custom_id" and _is_sent(form, name)}


def _is_sent(form: RowForm, name: str) -> bool:
    return name not in form.keep or name in form.send


def _batch_line(form: RowForm, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    unknown = value.keys() - BATCH_KEYS - set(form.keep)
    if unknown:
        raise RowProblem(
            f'"{min(unknown)}" is not a key of a batch line; remove it, or copy it to the output with --keep'
        )
    url, body = value["url"], value["body"]
    if value.get("method", "POST") != "POST":
        raise RowProblem('"method" must be "POST"')
    if not isinstance(url, str) or url not in REQUESTS:
        raise RowProblem(f'"url" must be the path of an endpoint, not {quoted(str(url))}{suggest(url, REQUESTS)}')
    if not isinstance(body, dict):
        raise RowProblem('"body" must be an object')
    return url, {name: field for name, field in body.items() if _is_sent(form, name)}


@dataclass(frozen=True, slots=True)
class DataSurvey:
    """Facts about a data file, which is read once before the run."""

    rows: int
    sha256: str
    first: Mapping[tuple[str, str], DataRow]
    """(URL, model) → the first row with this URL and model."""


def survey(path: Path, form: RowForm, score: RowScore | None = None) -> DataSurvey:
    """Read and check a whole data file. Raises ``CommandError`` with the problems found.

    ``score``: scores the rows after the run. A row whose kept columns it cannot use is a problem.
    """
    lines, first = dict[str, int](), dict[tuple[str, str], DataRow]()
    problems: list[str] = []
    columns: set[str] = set()
    inner: set[str] = set()
    for number, line in _lines(path):
        try:
            value = _object(line)
            columns.update(form.columns(value))
            row = form.row(number, value)
            if score is not None:
                score(RunRow(row.custom_id, "", answers=(RunAnswer(),), columns=row.kept))
            inner.update([name for _, name in unknown_in_messages(row.body)])
            if row.custom_id in lines:
                raise RowProblem(f'line {lines[row.custom_id]} also has custom_id "{row.custom_id}"; change one')
        except (RowProblem, InvalidValue) as problem:
            problems.append(f"{path}:{number}: {problem}")
            continue
        lines[row.custom_id] = number
        first.setdefault((row.url, row.body["model"]), row)
    if problems:
        _refuse_other_form(path)
        count = f"{path} has {counted(len(problems), 'problem')}"
        raise CommandError("\n".join([count, *problems[:MOST_PROBLEMS]]))
    if not lines:
        raise CommandError(f"{path}: the file has no rows")
    for option, names, known in (("--keep", form.keep, columns), ("--send", form.send, columns | inner)):
        if unused := set(names) - known:
            name = min(unused)
            raise CommandError(f'{option} {name}: no row of {path} has the column "{name}"{suggest(name, known)}')
    return DataSurvey(rows=len(lines), sha256=file_sha256(path), first=first)


def read_rows(path: Path, form: RowForm) -> Iterator[DataRow]:
    """Yield the rows of a file that ``survey`` has checked."""
    for number, line in _lines(path):
        yield form.row(number, _object(line))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each line that is not blank."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield number, line


def _object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises ``RowProblem``."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        what = "write one JSON object on each line, with names and texts in double quotes"
        raise RowProblem(f"the line is not JSON (column {error.colno}: {error.msg}); {what}") from None
    if not isinstance(value, dict):
        example = '{"messages": [{"role": "user", "content": "1+1=?"}]}'
        raise RowProblem(f"the line must contain a JSON object, such as {example}")
    return value


FROM_CSV = "import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin)]"
"""A Python program that writes the rows of a CSV table as JSON lines."""
MOST_OF_ONE_VALUE = 16 << 20
"""The number of bytes up to which a refused file is read as one JSON value."""


def _refuse_other_form(path: Path) -> None:
    """Raise ``CommandError`` for a file that is one JSON value over several lines, a JSON list or a table."""
    target = path.with_suffix(".rows.jsonl" if path.suffix == ".jsonl" else ".jsonl")
    old, new = shlex.quote(str(path)), shlex.quote(str(target))
    with _open(path) as file:
        content = file.read(MOST_OF_ONE_VALUE)
    if path.suffix == ".csv" and content.lstrip()[:1] not in (b"{", b"["):
        command = f'python3 -c "{FROM_CSV}" < {old} > {new}'
        raise CommandError(f"{path} is a table (CSV); write one JSON object on each line: {command}")
    try:
        value = orjson.loads(content)
    except ValueError:
        return
    if isinstance(value, list):
        raise CommandError(f"{path} is one JSON list; write one object on each line: jq -c '.[]' {old} > {new}")
    if b"\n" in content.strip():
        raise CommandError(f"{path} is one JSON value over several lines; write it on one line: jq -c . {old} > {new}")


def read_examples(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a file of examples. Raises ``CommandError`` if a line is not a JSON object."""
    examples: list[Mapping[str, Any]] = []
    for number, line in _lines(path):
        try:
            examples.append(_object(line))
        except RowProblem as problem:
            raise CommandError(f"{path}:{number}: {problem}") from None
    return tuple(examples)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. Raises ``CommandError`` if it cannot be read."""
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
