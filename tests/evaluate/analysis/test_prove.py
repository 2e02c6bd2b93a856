"""Which requests a proof sends, and what their answers say."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.exchange import Exchange
from gateway.evaluate.analysis.prove import Proof, ProofCall
from gateway.evaluate.analysis.recordings import read_recording
from gateway.evaluate.analysis.rows import RunAnswer, RunRow
from gateway.storage.recordings import open_recording
from gateway.wire.redaction import Redactor
from metatemplate.values.events import Begun, Delta, Event, Finish
from tests.backend.ask import exchange
from tests.backend.test_replay import record, said

ASKED: dict[str, Any] = {"params": {"max_tokens": 8}, "stops": ("\n",)}
CHANGES: dict[str, dict[str, Any]] = {
    "prompt": {"prompts": ("1 + 1 =",), "bos": "text", "bos_text": "<s>"},
    "parameters": {"params": {"max_tokens": 2}, "n": 2},
    "stops": {"stops": (), "stop_token_ids": (2,)},
}


def rows_of(file: Path, *asked: Exchange, ids: list[int] | None = None) -> list[RunRow]:
    """A recorded run; its rows have the names 0, 1 …"""
    extras = {} if ids is None else {"prompt_token_ids": ids}
    for number, one in enumerate(asked):
        choices: list[Event] = [Delta(0, f"{number}", extras=extras), Finish(0, "stop")]
        record(file, one, [(0.1, Begun("m/0")), *[(0.1, event) for event in choices]], str(number))
    return read_rows(file)


def read_rows(file: Path) -> list[RunRow]:
    with closing(open_recording(file)) as opened:
        return [row.with_facts() for row in read_recording(opened)]


def calls_of(folder: Path, a: list[RunRow], b: list[RunRow], most: int = 200) -> list[ProofCall]:
    proof = Proof(most, None)
    for one, other in zip(a, b, strict=True):
        proof.visit(one, other)
    return proof.calls(folder / "a.sqlite", folder / "b.sqlite")


@pytest.mark.parametrize("part", CHANGES)
def test_one_part_is_taken_from_the_first_run_beside_an_unchanged_control(tmp_path: Path, part: str) -> None:
    a = rows_of(tmp_path / "a.sqlite", exchange(**ASKED))
    b = rows_of(tmp_path / "b.sqlite", exchange(**{**ASKED, **CHANGES[part]}))
    control, proof = calls_of(tmp_path, a, b)
    asked = replace(exchange(**ASKED), request_id="")
    assert (control.part, control.exchange) == ("", replace(asked, **CHANGES[part]))
    assert (proof.part, proof.exchange) == (part, asked)


def test_several_parts_are_taken_alone_and_together(tmp_path: Path) -> None:
    a = rows_of(tmp_path / "a.sqlite", exchange(**ASKED))
    changed = {name: value for part in CHANGES.values() for name, value in part.items()}
    b = rows_of(tmp_path / "b.sqlite", exchange(**changed))
    control, *alone, together = calls_of(tmp_path, a, b)
    assert [one.part for one in alone] == list(CHANGES)
    for one in alone:
        back = {name: getattr(exchange(**ASKED), name) for name in CHANGES[one.part]}
        assert one.exchange == replace(control.exchange, **back)
    assert (together.part, together.exchange) == ("all of these", replace(exchange(**ASKED), request_id=""))


def test_the_ids_of_an_equal_prompt_are_sent_as_ids(tmp_path: Path) -> None:
    a = rows_of(tmp_path / "a.sqlite", exchange(), ids=[1, 5])
    b = rows_of(tmp_path / "b.sqlite", exchange(), ids=[1, 1, 5])
    control, ids = calls_of(tmp_path, a, b)
    assert (control.exchange.prompts, ids.part, ids.exchange.prompts) == (("1+1=",), "prompt ids", ((1, 5),))


def test_the_samples_of_all_parts_share_their_rows(tmp_path: Path) -> None:
    asked = [exchange(prompts=(f"{n}+1=",), **ASKED) for n in range(20)]
    a = rows_of(tmp_path / "a.sqlite", *asked)
    b = rows_of(tmp_path / "b.sqlite", *[replace(one, params={"max_tokens": 2}, stops=()) for one in asked])
    calls = calls_of(tmp_path, a, b, most=5)
    assert len(calls) == 4 * 5
    assert len({call.pair.b.custom_id for call in calls}) == 5


def test_rows_that_cannot_be_sent_again_are_counted(tmp_path: Path) -> None:
    tools = exchange(params={"tools": [{"function": {"name": "add"}}]})
    a = rows_of(tmp_path / "a.sqlite", exchange(), exchange(), tools)
    b = rows_of(tmp_path / "b.sqlite", *[exchange(stops=("x",)), exchange(), replace(tools, stops=("x",))])
    proof = Proof(5, None)
    for one, other in zip(a, b, strict=True):
        proof.visit(one, other)
    for prompt in ("a@b.example", "no text is replaced, but token ids are not recorded"):
        redacted = record(tmp_path / "c.sqlite", exchange(prompts=(prompt,)), said("x"), redactor=Redactor(("email",)))
        proof.visit(a[0], read_rows(redacted)[-1])
    proof.visit(a[0], replace(b[0], facts=replace(b[0].facts, request="another question")))
    assert (proof.rows, dict(proof.present), proof.left_out) == (6, {"stops": 1}, 3)


def test_an_effect_counts_for_all_rows_and_only_pairs_with_both_answers(tmp_path: Path) -> None:
    asked = [exchange(prompts=(f"{n}+1=",), stops=("x",) if n < 4 else ()) for n in range(8)]
    a = rows_of(tmp_path / "a.sqlite", *asked)
    b = rows_of(tmp_path / "b.sqlite", *[replace(one, stops=()) for one in asked])
    b = [replace(row, answers=(RunAnswer("other"),)) for row in b]
    proof = Proof(200, None)
    for one, other in zip(a, b, strict=True):
        proof.visit(one, other)
    for call in proof.calls(tmp_path / "a.sqlite", tmp_path / "b.sqlite"):
        if call.part or call.pair.b.custom_id != "3":  # the control of row 3 has failed
            proof.answered(call, [RunAnswer(call.pair.b.custom_id if call.part else "other")])
    (effect,) = proof.effects()
    assert (effect.present, effect.effect.rows, effect.effect.mean, proof.reproduced) == (4, 3, 0.5, 3)
