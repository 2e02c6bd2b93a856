"""The figures of the fault matrix with small numbers; times are measured by ``scripts/reliability``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.policy.deliver.targets.retry_budget import FREE_PER_SECOND, WINDOW
from tests.reliability.drains import drain
from tests.reliability.figures import (
    CANARY,
    PHASES,
    PROMPT,
    half_dead,
    hang_ups,
    leaks,
    new_series,
    retry_storm,
    usage,
)
from tests.reliability.overload import overload
from tests.support.world import World


def test_t2_the_upstream_sees_every_client_that_leaves(world: World) -> None:
    count = 5 * len(PHASES)
    result = hang_ups(world, count)
    assert (result.seen, result.running, result.active, result.next_answers) == (count, 0, 0, 10)


def test_t3_retries_add_at_most_a_fifth_to_the_load_of_a_failing_target(world: World) -> None:
    result = retry_storm(world, 300)
    assert result.attempts <= 1.2 * result.calls + FREE_PER_SECOND * (WINDOW + result.seconds)
    assert result.refused_retries == 2 * result.calls - result.attempts > 0


def test_t4_no_call_fails_while_one_of_two_targets_is_dead(world: World) -> None:
    assert half_dead(world, 60) == 60


def test_t5_calls_beyond_the_capacity_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    result = overload(tmp_path, factor=3, seconds=0.5)
    assert result.statuses.keys() == {200, 503}


def test_t6_no_stream_is_cut_that_ends_within_the_drain_time(tmp_path: Path) -> None:
    result = drain(tmp_path, streams=20, pause=0.5, drain_seconds=60)
    assert (result.whole, result.records, result.exit_code) == (20, 20, 0)


def test_t11_every_completed_call_is_counted_once_with_the_upstreams_tokens(world: World) -> None:
    result = usage(world, 40)
    assert result.records == result.calls
    assert min(result.upstream.values()) >= result.calls
    assert result.counted == result.upstream


def test_t13_no_key_prompt_or_header_is_in_errors_metrics_and_logs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="gateway")
    assert leaks(world) == []
    assert caplog.records
    assert CANARY not in caplog.text
    assert PROMPT in str(world.up.requests[-1].body)  # the calls did carry it


def test_t14_random_models_and_keys_add_no_series(world: World) -> None:
    assert new_series(world, 100) == 0
