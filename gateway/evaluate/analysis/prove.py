"""Proves causes: requests of the second run, each sent unchanged (the control) and with one part taken from the first.

The rows are sampled from all rows of both runs in which the part differs, and not only from those whose answer differs:
of the latter, many would return to their earlier answer by chance.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from gateway.core.exchange import Exchange
from gateway.evaluate.analysis.differences import DIFFERENCES, compared_parameters
from gateway.evaluate.analysis.rows import RowFacts, RunAnswer, RunRow
from gateway.evaluate.analysis.scores import Mean, RowScore, bootstrap
from gateway.storage.recordings import RecordingFile, exchange_of, open_recording
from gateway.wire.inlined_file import PLACEHOLDER

STOPS = frozenset({"stop", "stop_token_ids"})
PARTS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompts", "messages", "bos", "bos_text"),
    "prompt ids": ("prompts",),
    "parameters": ("params", "n"),
    "stops": ("stops", "stop_token_ids"),
}
"""Part of a request → the fields of the exchange that are taken from the first run."""
TOGETHER = "all of these"
"""The proof with all parts of a row that differ, if they are more than one."""
PROVABLE = frozenset({"prompt", "prompt ids", "parameters"})
"""The causes of ``gateway why`` that a proof covers. ``parameters`` includes the stops."""
NOT_PROVABLE = tuple([name for name in DIFFERENCES if name not in PROVABLE])


@dataclass(frozen=True, slots=True)
class RowPair:
    """A row of both runs with the parts of its request that differ."""

    a: RunRow
    b: RunRow
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProofCall:
    """One request of a proof."""

    pair: RowPair
    part: str
    """The part that is taken from the first run. Empty: the control."""
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ProvedEffect:
    """What a part of the request does to the score of the second run."""

    part: str
    present: int
    """The number of rows in which the part differs."""
    effect: Mean
    """Returned minus control, as a change of the score of all rows: it counts 0 for rows in which nothing differs."""


@dataclass(slots=True)
class Proof:
    """Samples rows while two runs are compared, and computes the effects from the answers of the target."""

    most: int
    """The maximum number of rows for each part."""
    score: RowScore | None
    rows: int = 0
    """The number of rows of both runs."""
    present: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    """The number of rows with a difference whose request is not fully recorded, or has tools or several exchanges."""
    answers: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Row, part) → the score of the answer."""
    reproduced: int = 0
    """The number of controls with the recorded answer of the second run."""
    failed: Counter[str] = field(default_factory=Counter)
    """Error code → failed calls. The rows of these calls count for no effect."""
    _sample: dict[str, list[tuple[float, RowPair]]] = field(default_factory=dict)
    """Part → its rows with the smallest random numbers, as a heap. One number for a row: the samples share rows."""
    _rng: random.Random = field(default_factory=lambda: random.Random(0))

    def visit(self, a: RunRow, b: RunRow) -> None:
        """Read a row of both runs. The rows of each part are a random sample of at most ``most``."""
        self.rows += 1
        a, b = a.with_facts(), b.with_facts()
        parts = _different_parts(a.facts, b.facts)
        if not parts:
            return
        if not (_can_be_sent(a) and _can_be_sent(b)):
            self.left_out += 1
            return
        pair, number = RowPair(a, b, parts), self._rng.random()
        for part in (*parts, *([TOGETHER] if len(parts) > 1 else [])):
            self.present[part] += 1
            sample = self._sample.setdefault(part, [])
            heappush(sample, (-number, pair))
            if len(sample) > self.most:
                heappop(sample)

    def calls(self, a: Path, b: Path) -> list[ProofCall]:
        """Return the calls, with one control for each row. ``a``, ``b``: the recordings of the runs."""
        chosen: dict[str, tuple[RowPair, list[str]]] = {}
        for part in (*PARTS, TOGETHER):
            for _, pair in self._sample.get(part, ()):
                chosen.setdefault(pair.b.custom_id, (pair, []))[1].append(part)
        with closing(open_recording(a)) as first, closing(open_recording(b)) as second:
            return [call for pair, parts in chosen.values() for call in _calls_of(pair, parts, first, second)]

    def answered(self, call: ProofCall, answers: Sequence[RunAnswer]) -> None:
        """Store the answer to a call, as its score. Without a score it is whether the answer is that of run A."""
        row = replace(call.pair.b, answers=tuple(answers), error="")
        if self.score is None:
            value = float(_texts(row) == _texts(call.pair.a) and not call.pair.a.error)
        else:
            value = self.score(row)
        self.answers[row.custom_id, call.part] = value
        self.reproduced += not call.part and _texts(row) == _texts(call.pair.b)

    def effects(self) -> list[ProvedEffect]:
        """Return the effect of each part that differs, with its interval (a paired bootstrap)."""
        found = []
        for part in (*PARTS, TOGETHER):
            pairs = [(name, "") for name, own in self.answers if own == part and (name, "") in self.answers]
            if self.present[part]:
                mean = bootstrap([self.answers[name, part] - self.answers[name, ""] for name, _ in pairs])
                share = self.present[part] / self.rows
                effect = Mean(mean.rows, mean.mean * share, mean.low * share, mean.high * share)
                found.append(ProvedEffect(part, self.present[part], effect))
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the proof as a JSON object."""
        controls = sum([not part for _, part in self.answers])
        effects = {one.part: {"rows_with_difference": one.present, **asdict(one.effect)} for one in self.effects()}
        return {
            "effects": effects,
            "controls": controls,
            "controls_as_recorded": self.reproduced,
            "failed_calls": dict(self.failed),
            "left_out": self.left_out,
            "not_provable": list(NOT_PROVABLE),
        }


def _different_parts(a: RowFacts, b: RowFacts) -> tuple[str, ...]:
    """Return the parts that differ. Ids of another prompt, and the prompt of another question, do not count."""
    if a.request != b.request or a.dataset_prompt != b.dataset_prompt:
        return ()
    found = []
    if a.prompt and b.prompt and (a.prompt, a.bos) != (b.prompt, b.bos):
        found.append("prompt")
    elif a.prompt_ids and b.prompt_ids and a.prompt_ids != b.prompt_ids:
        found.append("prompt ids")
    one, other = compared_parameters(a, b)
    if one is not None and other is not None:
        names = {name for name in (*one, *other) if one.get(name) != other.get(name)}
        found += ["parameters"] * (not names <= STOPS) + ["stops"] * (not names.isdisjoint(STOPS))
    return tuple(found)


def _can_be_sent(row: RunRow) -> bool:
    is_plain = not row.steps and not row.tools and not (row.facts.params or {}).keys() & {"tools", "response_format"}
    has_files = f'"{PLACEHOLDER}' in (row.facts.prompt or "")  # their contents are not recorded
    return row.facts.exchange is not None and is_plain and not has_files


def _calls_of(pair: RowPair, parts: Sequence[str], first: RecordingFile, second: RecordingFile) -> Iterator[ProofCall]:
    query = "SELECT * FROM exchanges WHERE id = ?"
    rows = [file.execute(query, (row.facts.exchange,)).fetchone() for file, row in ((first, pair.a), (second, pair.b))]
    a, b = [exchange_of(row) for row in rows]
    yield ProofCall(pair, "", b)
    for part in parts:
        taken: dict[str, Any] = {}
        for name in pair.parts if part == TOGETHER else (part,):
            taken |= {one: getattr(a, one) for one in PARTS[name]}
            if name == "prompt ids":
                taken["prompts"] = tuple([tuple(ids) for ids in rows[0]["prompt_ids"]])
        yield ProofCall(pair, part, replace(b, **taken))


def _texts(row: RunRow) -> list[tuple[str, str, str]]:
    return [(one.text, one.reasoning, one.refusal) for one in row.answers]
