"""The rows of a run, each with its answers, read one by one from an output file of ``gateway run``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import orjson

from gateway.core.errors import InvalidValue, UpstreamInvalidResponse
from gateway.wire.logprobs import from_chat, from_completions
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import TokenLogprob

ANSWER_CUT = "answer_cut: choices["
"""The notice of the gateway about an answer that is empty or cut off at the context: ``answer_cut: choices[0]=empty``.
"""
AT_LIMIT = "at_limit"
"""The reason in this notice for an answer that ended with ``stop`` at the token limit."""

UNREAD = "tool_call_not_read: choices["
"""The notice of the gateway about a tool call that stays text: ``tool_call_not_read: choices[0]=hermes``."""

DEFAULT_LIMIT = "default_parameter: max_tokens="
"""The notice of the gateway about a ``max_tokens`` that it has set."""


class OpenRuns(ExitStack):
    """Closes the files of runs, and has the notes about what their rows lack.

    ``only``: the id of the only row that is needed. None: all rows are needed.
    """

    def __init__(self, only: str | None = None) -> None:
        super().__init__()
        self.only, self.notes = only, list[str]()


@dataclass(frozen=True, slots=True)
class RunToolCall:
    """One tool call of an answer."""

    name: str
    arguments: str
    """The arguments as the model wrote them."""


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """One choice of a response."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[RunToolCall, ...] = ()
    finish_reason: str = ""
    cut: str = ""
    """The reason in the gateway's notice ``answer_cut``, such as ``context``. Empty: no notice."""
    has_unread_call: bool = False
    """The gateway noticed a tool call that stays text."""


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """One token of an answer, with its log probability and the likeliest tokens at its place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What is known about how a row was asked and answered. None: not recorded, which equals nothing."""

    request: str | None = None
    """The hash of the client's request without parameters."""
    asked: Mapping[str, Any] | None = None
    """The client's request without parameters: ``messages``, ``prompts``, ``dataset_prompt``, ``turns`` … None also if
    it is redacted: different texts may be equal then."""
    repeat: int = 0
    dataset_prompt: str | None = None
    """The name and hash of the dataset prompt; empty without one."""
    template: str | None = None
    """The name and hash of the template."""
    prompt: str | None = None
    """The prompt, or its messages as JSON."""
    prompt_sha256: str | None = None
    bos: str | None = None
    """Which BOS precedes the prompt, and its text."""
    prompt_ids: str | None = None
    """The token ids of the prompt as JSON."""
    params: Mapping[str, Any] | None = None
    """The parameters that were sent, with ``n``, ``stop`` and ``stop_token_ids``."""
    default_limit: bool = False
    """The gateway set ``max_tokens`` itself, and no answer reached it. It may follow from the length of the prompt."""
    route: Mapping[str, str] | None = None
    """What may change an answer on its way: ``cache``, ``fallback``, ``failed attempts``, ``provider`` …"""
    settings: Mapping[str, Any] | None = None
    """The settings of the target that replicas have in common, such as ``engine``."""
    target: str | None = None
    exchange: int | None = None
    """The id of the exchange in the file of recordings, if it can be replayed: see ``reason_not_replayable``."""
    raw: str | None = None
    """The text of the target before the gateway cut and parsed it, of all choices."""
    delivered: str | None = None
    """The answers as the client received them, without their ends, as JSON. Only recordings have this."""
    ends: tuple[str, ...] | None = None
    """For each choice its finish reason, and who cut it: ``length``, ``stop by gateway`` …"""
    tokens: tuple[tuple[ChosenToken, ...], ...] | None = None
    """The tokens of each choice, if their log probabilities are recorded."""


NO_FACTS = RowFacts()


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of a run."""

    custom_id: str
    model: str
    dataset_prompt: str = ""
    """The id of the dataset prompt. Empty: the row names no dataset prompt."""
    error: str = ""
    """The error code of a row without an answer. Empty: the row has an answer."""
    answers: tuple[RunAnswer, ...] = ()
    """Empty for a row that failed, and for a row whose response has no choices, such as a likelihood."""
    request_id: str = ""
    """The id of the request in recordings. Empty: not known."""
    seconds: float | None = field(default=None, compare=False)
    """The duration of the call. None: not known."""
    columns: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The columns that were kept for the output (``--keep``)."""
    tools: tuple[Mapping[str, Any], ...] | None = None
    """The tools of the request. None: not recorded."""
    facts: RowFacts = NO_FACTS
    """The facts of the last request to the model."""
    steps: tuple[RowFacts, ...] = ()
    """The facts of every request to the model, if the row needed several: turns, candidates, reasoning first."""
    read_facts: Callable[[], tuple[RowFacts, tuple[RowFacts, ...]]] | None = field(default=None, compare=False)
    """Reads ``facts`` and ``steps`` of a recorded row, whose ``facts`` are only ``request``, ``repeat`` and ``target``:
    prompts and events of all rows would not fit into the memory. None: ``facts`` has everything."""

    read_asked: Callable[..., Mapping[str, Any] | None] = field(default=lambda **_: None, compare=False)
    """Reads ``facts.asked`` alone. ``redacted=True``: also a redacted request, which is only to be shown."""
    read_calls: Callable[[], Sequence[Mapping[str, Any]]] = field(default=tuple, compare=False)
    """Reads what a report says about the recorded calls of the row: the columns of ``CALL`` in ``recordings``."""
    points: float | None = field(default=None, compare=False)
    """The score that another program has given to the row. NaN: none. None: not known."""

    def with_facts(self) -> RunRow:
        """Return the row with all its facts."""
        if self.read_facts is None:
            return self
        facts, steps = self.read_facts()
        return replace(self, facts=facts, steps=steps, read_facts=None)

    def first_text(self) -> str:
        """Return the error of the row, or else the text of its first answer, or its reasoning, or its refusal."""
        return self.error or next((one.text or one.reasoning or one.refusal for one in self.answers), "")

    def known_points(self) -> float | None:
        """Return ``points``, or None for NaN."""
        return None if self.points is None or isnan(self.points) else self.points


def read_output(path: Path) -> Iterator[RunRow]:
    """Yield the rows of an output file of ``gateway run``. A partial last line, as a killed run leaves it, is left out.

    Raises ``InvalidValue`` for a line of another program, and ``OSError`` if the file cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = row_of(orjson.loads(line))
                _require_types(row)
                yield row
            except (ValueError, TypeError, KeyError, AttributeError, UpstreamInvalidResponse):
                raise InvalidValue(
                    f"{path}:{number}: this line is not from `gateway run`; give the output (--out) of a run"
                ) from None


def with_manifest(rows: Iterable[RunRow], path: Path) -> Iterator[RunRow]:
    """Yield the rows of an output with the parameters in its manifest: those of the first row of each model.

    Raises ``InvalidValue`` if the file is no manifest, and ``OSError`` if it cannot be read.
    """
    try:
        models = orjson.loads(path.read_bytes())["identity"]["models"]
        params = {
            model: {**one["params"], **{name: one[name] for name in ("n", "stop", "stop_token_ids")}}
            for model, one in models.items()
            if one.get("params") is not None  # several requests of a row have no common parameters
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidValue(f"{path}: this file is not a manifest of `gateway run`") from None
    for row in rows:
        yield replace(row, facts=replace(row.facts, params=params.get(row.model)))


def row_of(value: Mapping[str, Any]) -> RunRow:
    """Return the row of an output line.

    Raises ``KeyError``, ``TypeError``, ``AttributeError`` or ``UpstreamInvalidResponse`` for another object.
    """
    provenance, response, body = value["gateway"], value["response"], body_of(value)
    error, seconds = "", provenance.get("seconds")
    if response is None or response["status_code"] != 200:
        error = str((value["error"] or body.get("error") or {}).get("code") or "no_code")  # some servers send numbers
    return RunRow(
        custom_id=value["custom_id"],
        model=provenance.get("model", "unknown"),
        dataset_prompt=provenance.get("dataset_prompt", ""),
        error=error,
        request_id=(response or {}).get("request_id") or "",
        seconds=max(0.0, seconds) if isinstance(seconds, int | float) else None,
        answers=() if error else answers_of(body, provenance.get("notices", ())),
        columns=value.get("row", EMPTY_MAPPING),
        facts=_facts(provenance, body),
    )


def body_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the response in an output line; empty without a response, and for a body that is no JSON."""
    body = (value["response"] or {"body": None})["body"]
    return body if isinstance(body, dict) else {}


def _require_types(row: RunRow) -> None:
    """Raise ``TypeError`` if a value of an output line has another type than that of its field."""
    facts = row.facts
    texts = [row.custom_id, row.model, row.dataset_prompt, row.error, row.request_id, facts.dataset_prompt]
    texts += [one for one in (facts.template, facts.prompt_sha256, facts.target) if one is not None]
    texts += facts.ends or ()
    for answer in row.answers:
        texts += [answer.text, answer.reasoning, answer.refusal, answer.finish_reason, answer.cut]
        texts += [text for call in answer.tool_calls for text in (call.name, call.arguments)]
    if not all(isinstance(text, str) for text in texts) or not isinstance(row.columns, Mapping):
        raise TypeError("a value has another type than that of its field")


def _facts(provenance: Mapping[str, Any], body: Mapping[str, Any]) -> RowFacts:
    """Return what an output line says: its headers and finish reasons."""
    notices, choices = provenance.get("notices", ()), body.get("choices") or ()
    tokens = [_tokens(choice.get("logprobs")) for choice in choices]
    return RowFacts(
        dataset_prompt=provenance.get("dataset_prompt", ""),
        template=provenance.get("template"),
        prompt_sha256=provenance.get("prompt_sha256"),
        route=route_facts(
            cache=provenance.get("cache", ""),
            failed="" if provenance.get("attempts", 1) <= 1 else "yes",
            notices=notices,
        ),
        target=provenance.get("target"),
        default_limit=is_default_limit(notices, choices),
        ends=tuple([choice.get("finish_reason") or "none" for choice in choices]),
        tokens=tuple(tokens) if any(tokens) else None,
    )


def is_default_limit(notices: Sequence[str], choices: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the gateway has set ``max_tokens``, and no choice has reached it."""
    if any(one.startswith(ANSWER_CUT) and one.endswith(f"={AT_LIMIT}") for one in notices):
        return False
    is_default = any(one.startswith(DEFAULT_LIMIT) for one in notices)
    return is_default and all(choice["finish_reason"] != "length" for choice in choices)


def _tokens(logprobs: Any) -> tuple[ChosenToken, ...]:
    """Return the tokens in the log probabilities of a choice, in the format of chats or of completions."""
    if not isinstance(logprobs, dict):
        return ()
    return chosen_tokens((from_chat(logprobs) if "content" in logprobs else from_completions(logprobs)) or ())


def chosen_tokens(tokens: Iterable[TokenLogprob]) -> tuple[ChosenToken, ...]:
    """Return tokens without their bytes and places."""
    tops = [(one, tuple([(text, value) for text, value, _ in one.top or ()])) for one in tokens]
    return tuple([ChosenToken(one.token, one.logprob or 0.0, top) for one, top in tops])


def route_facts(cache: str, failed: str, notices: Sequence[str]) -> dict[str, str]:
    """Return what may change an answer on its way. ``failed``: the failed attempts; ``notices``: as in the headers."""
    found = {"cache": "hit" if cache.startswith("hit") else "", "failed attempts": failed}
    for name in ("fallback", "provider", "reasoning_put_back"):
        found[name] = "; ".join([one.partition(": ")[2] for one in notices if one.startswith(f"{name}: ")])
    return {name: value for name, value in found.items() if value}


def answers_of(body: Mapping[str, Any], notices: Sequence[str]) -> tuple[RunAnswer, ...]:
    """Return the answers in the body of a response: one for each choice, or for each turn of a dialogue.

    ``notices``: the notices of the response's headers.
    """
    if "prediction" in body:  # of /v1/loglikelihood
        return (RunAnswer(text=body["prediction"], finish_reason="stop"),)
    extra = body.get("gateway")
    if isinstance(extra, dict) and extra.get("turns"):
        return tuple([_answer({"message": turn, **turn}, "") for turn in extra["turns"]])
    cuts = dict([notice.removeprefix(ANSWER_CUT).split("]=", 1) for notice in notices if notice.startswith(ANSWER_CUT)])
    unread, choices = unread_choices(notices), body.get("choices") or ()
    numbers = [str(choice.get("index", 0)) for choice in choices]
    return tuple([_answer(one, cuts.get(at, ""), at in unread) for at, one in zip(numbers, choices, strict=True)])


def unread_choices(notices: Iterable[str]) -> set[str]:
    """Return the indexes of the choices with a tool call that stays text, as in the notices."""
    return {one.removeprefix(UNREAD).partition("]")[0] for one in notices if one.startswith(UNREAD)}


def _answer(choice: Mapping[str, Any], cut: str, has_unread_call: bool = False) -> RunAnswer:
    message = choice.get("message") or {}
    text = choice.get("text") or _text(message.get("content"))
    return answer_of(text, message, choice.get("finish_reason") or "", cut, has_unread_call)


def answer_of(
    text: str, fields: Mapping[str, Any], finish_reason: str, cut: str = "", has_unread_call: bool = False
) -> RunAnswer:
    """Return the answer of a choice. ``fields``: its message, or what it has beside its text.

    The reasoning is under the name that the policy has chosen. Some servers send arguments that are no text.
    """
    calls = [call.get("function") or {} for call in fields.get("tool_calls") or ()]
    return RunAnswer(
        text=text,
        reasoning=fields.get("reasoning_content") or fields.get("reasoning") or "",
        refusal=fields.get("refusal") or "",
        tool_calls=tuple([RunToolCall(str(one.get("name") or ""), str(one.get("arguments") or "")) for one in calls]),
        finish_reason=finish_reason,
        cut=cut,
        has_unread_call=has_unread_call,
    )


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if isinstance(content, str):
        return content
    return "".join([part.get("text") or "" for part in content or ()])
