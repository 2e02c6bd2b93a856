"""The attempts, the time and the retries of a call that is sent to several models."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.assembly import assemble, open_shared_resources
from gateway.backend.scripted import ScriptedBackend
from gateway.calls.fallback import FallbackRun
from gateway.calls.preparation.prepare import prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.calls.turns import run_turns
from gateway.config.load import load
from gateway.core.caller import Caller
from gateway.core.errors import UpstreamError
from gateway.policy.deliver.split_calls import SplitCalls, UpstreamCapabilities
from gateway.policy.deliver.targets.retry_budget import FREE_PER_SECOND, WINDOW
from gateway.telemetry.metrics import Metrics
from gateway.wire.requests import read_chat
from metatemplate.values.events import Completion
from tests.support.serving import write_files
from tests.support.virtual_clock import run

SCRIPTS = {
    "fails": "[{error: upstream_error}]",
    "fails-late": "[{pause: 1.5}, {error: upstream_error}]",
    "answers-late": "[{pause: 1.5}, fine, {finish: stop}]",
    "hangs": "[{pause: 1000}, {error: upstream_error}]",
}


def requested_model(folder: Path, delivery: str, *scripts: str) -> Route:
    """The route of model ``a``, with the fallback models ``b`` and ``c``.

    ``delivery``: settings of ``a``. ``scripts``: those of the targets of ``a``, ``b`` and ``c``.
    """
    models = ""
    for (name, targets), script in zip((("a", 2), ("b", 2), ("c", 1)), scripts, strict=True):
        fallback = "policy: p, fallback: [b, c], " if name == "a" else ""
        target = f"{{speaks: scripted, script: {script}.yaml}}"
        models += f"  {name}: {{template: chat, {fallback}targets: [{', '.join([target] * targets)}]}}\n"
    files = {
        **{f"{name}.yaml": script for name, script in SCRIPTS.items()},
        "gateway.yaml": f"models:\n{models}",
        "policies/p.yaml": f"delivery: {{fallback: true, {delivery}}}\n",
    }
    write_files(folder, files)
    return assemble(load(folder / "gateway.yaml", {}), open_shared_resources(Metrics())).routes["a"]


@dataclass
class Outcome:
    """The result of one call."""

    failed: tuple[str, ...]
    """``target=code`` of each failed attempt."""
    attempts: int
    retries: int
    seconds: float
    model: str
    """The model of the last attempt."""
    error: UpstreamError | None


async def call(route: Route, *allowed: str, turns: int = 0, n: int = 1) -> Outcome:
    """Send one call. ``allowed``: the fallback models that the client's key may use. ``turns``: 0 for a single call."""
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "n": n}
    if turns:
        body["gateway"] = {"turns": {"questions": ["and?"] * turns}}
    request = replace(read_chat(body, request_id="r"), caller=Caller(models=frozenset({"a", *allowed})))
    timeline, error, models = CallTimeline("chat", "r", 0.0), None, ["a"]
    started = asyncio.get_running_loop().time()
    try:
        if turns:
            _, answers = await run_turns(route, request, timeline, lambda route, _: models.append(route.spec.name))
            assert [completion.choices[0].text for _, completion in answers] == ["fine"] * turns
        else:
            one = FallbackRun(route, await prepare(route, request), timeline, request)
            try:
                async with one as events:
                    answer = await events.whole()
            finally:
                models.append(one.route.spec.name)
            assert isinstance(answer, Completion)
            assert answer.choices[0].text == "fine"
    except UpstreamError as failure:
        error = failure
    seconds = asyncio.get_running_loop().time() - started
    log = timeline.attempt_log
    return Outcome(tuple(log.failed_attempts()), log.count, log.retries, seconds, models[-1], error)


ATTEMPTS = {  # delivery.retry.attempts, the allowed fallback models: the targets that are tried, in order
    "one attempt never falls back": (1, "bc", "a/0"),
    "no attempt is left for c": (2, "bc", "a/0 b/0"),
    "one attempt for each model": (3, "bc", "a/0 b/0 c/0"),
    "a further attempt belongs to the first model": (4, "bc", "a/0 a/1 b/0 c/0"),
    "then to the next": (5, "bc", "a/0 a/1 b/0 b/1 c/0"),
    "each model has its own limit for this failure": (10, "bc", "a/0 a/1 b/0 b/1 c/0 c/0"),
    "a model that the key may not use reserves nothing": (3, "c", "a/0 a/1 c/0"),
}


@pytest.mark.parametrize("case", ATTEMPTS)
def test_all_models_share_the_attempts_of_the_requested_model(tmp_path: Path, case: str) -> None:
    attempts, allowed, tried = ATTEMPTS[case]
    outcome = run(call(requested_model(tmp_path, f"retry: {{attempts: {attempts}}}", *["fails"] * 3), *allowed))
    assert outcome.failed == tuple(f"{target}=upstream_error" for target in tried.split())
    assert outcome.attempts == len(outcome.failed) <= attempts
    assert outcome.retries == outcome.attempts - 1


TIMES = {  # attempts, scripts: failed attempts, seconds, the model that is asked last, the error
    "the last model fails at the end of the total time": (
        3,
        ("fails-late", "fails-late", "fails-late"),
        "a/0=upstream_error b/0=upstream_error c/0=deadline_exceeded",
        4.0,
        "c",
        "deadline_exceeded",
    ),
    "the attempts end before the time": (
        2,
        ("fails-late", "fails-late", "fails-late"),
        "a/0=upstream_error b/0=upstream_error",
        3.0,
        "b",
        "upstream_error",
    ),
    "no other model is asked when the time is over": (
        3,
        ("hangs", "answers-late", "answers-late"),
        "a/0=upstream_timeout",
        4.0,
        "a",
        "upstream_timeout",
    ),
    "a model that answers in time": (
        3,
        ("fails-late", "answers-late", "answers-late"),
        "a/0=upstream_error",
        3.0,
        "b",
        None,
    ),
}


@pytest.mark.parametrize("case", TIMES)
def test_all_models_share_the_total_time_of_the_requested_model(tmp_path: Path, case: str) -> None:
    attempts, scripts, failed, seconds, model, code = TIMES[case]
    delivery = f"retry: {{attempts: {attempts}}}, timeout: {{total: 4s}}"
    outcome = run(call(requested_model(tmp_path, delivery, *scripts), "b", "c"))
    assert outcome.failed == tuple(failed.split())
    assert outcome.seconds == pytest.approx(seconds)
    assert outcome.model == model
    assert (outcome.error and outcome.error.code) == code
    if seconds == 4.0:
        assert outcome.error is not None
        assert "4 s (delivery.timeout.total)" in outcome.error.message, "the timeout of the requested model"


def test_the_retries_at_all_models_use_the_budget_of_the_requested_model(tmp_path: Path) -> None:
    route = requested_model(tmp_path, "retry: {attempts: 6, budget: 0%}", *["fails"] * 3)

    async def storm(calls: int) -> list[Outcome]:
        return [await call(route, "b", "c") for _ in range(calls)]

    begun = time.monotonic()
    outcomes = run(storm(60))
    allowed = FREE_PER_SECOND * (WINDOW + time.monotonic() - begun)
    tried = [[failure.partition("/")[0] for failure in outcome.failed] for outcome in outcomes]
    assert all(set(models) == set("abc") for models in tried), "a first attempt at a model is no retry"
    retries = sum(len(models) - 3 for models in tried)
    assert FREE_PER_SECOND * WINDOW <= retries <= allowed


DIALOGUES = {  # attempts, total, scripts: failed attempts, all attempts, seconds, the last model, the error
    "every turn has the attempts of a call": (
        3, "9s", ("answers-late", "fails", "fails"), "", 2, 3.0, "a", None,
    ),
    "each model has one attempt": (
        3, "9s", ("fails", "fails", "answers-late"), "a/0=upstream_error b/0=upstream_error", 4, 3.0, "c", None,
    ),
    "the models share the total time": (
        3, "4s", ("fails-late", "answers-late", "answers-late"), "a/0=upstream_error", 3, 4.0, "b", "deadline_exceeded",
    ),
    "no attempt is left": (1, "9s", ("fails", "answers-late", "answers-late"), "a/0=upstream_error", 1, 0.0, "a",
                           "upstream_error"),
}  # fmt: skip


@pytest.mark.parametrize("case", DIALOGUES)
def test_a_dialogue_shares_the_limits_of_the_requested_model(tmp_path: Path, case: str) -> None:
    attempts, total, scripts, failed, made, seconds, model, code = DIALOGUES[case]
    delivery = f"retry: {{attempts: {attempts}}}, timeout: {{total: {total}}}"
    outcome = run(call(requested_model(tmp_path, delivery, *scripts), "b", "c", turns=2))
    assert outcome.failed[: len(failed.split())] == tuple(failed.split())
    assert outcome.attempts == made
    assert (outcome.model, outcome.error and outcome.error.code) == (model, code)
    assert outcome.seconds == pytest.approx(seconds)


def test_a_later_part_of_a_split_call_is_not_sent_to_another_model(tmp_path: Path) -> None:
    parts = ScriptedBackend(["fine", {"finish": "stop"}], [{"error": "upstream_error"}], label="a/0")
    route = requested_model(tmp_path, "retry: {attempts: 3}", "fails", "answers-late", "answers-late")
    split = SplitCalls(parts, UpstreamCapabilities(lists=False, choices=False), 9)
    outcome = run(call(replace(route, backend=split), "b", "c", n=2))
    assert (outcome.model, outcome.error and outcome.error.code) == ("a", "upstream_error")
