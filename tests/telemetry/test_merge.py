"""The tallies of several processes become one exposition, as each metric means it."""

from __future__ import annotations

import pickle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.record import Record
from gateway.telemetry.merge import MetricsSnapshot, merge, without_gauges
from gateway.telemetry.metrics import Metrics

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(told: MetricsSnapshot) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(told.exposition().decode())
        for sample in family.samples
    }


def ours(told: MetricsSnapshot) -> Series:
    return {key: value for key, value in series(told).items() if key[0].startswith("gateway_")}


def worker(*models: str) -> Metrics:
    """One that has finished a call to each model, and has one under way."""
    metrics = Metrics()
    for number, model in enumerate(models):
        metrics.record(Record(f"req_{number}", "chat", model, "ok", 200, False, duration=0.25 * (number + 1)))
    metrics.in_flight["chat", "a"].value += 1
    metrics.built("1", "abc")
    return metrics


def test_one_tally_is_told_as_its_process_would_tell_it() -> None:
    metrics = worker("a", "b")
    own = [line for line in metrics.exposition().decode().splitlines() if "process_" not in line]
    told = [line for line in merge([metrics.snapshot()]).exposition().decode().splitlines() if "process_" not in line]
    assert told == own


def test_counts_and_observations_are_added_and_the_build_is_told_once() -> None:
    told = ours(merge([worker("a", "b").snapshot(), worker("b").snapshot()]))
    calls = {dict(labels)["model"]: value for (name, labels), value in told.items() if name == "gateway_requests_total"}
    assert calls == {"a": 1, "b": 2}
    b = (("endpoint", "chat"), ("model", "b"), ("stream", "false"))
    assert told["gateway_request_seconds_count", b] == 2
    assert told["gateway_request_seconds_sum", b] == 0.75
    endpoint, *further = b
    assert told["gateway_request_seconds_bucket", (endpoint, ("le", "0.3"), *further)] == 1
    assert told["gateway_request_seconds_bucket", (endpoint, ("le", "+Inf"), *further)] == 2
    assert told["gateway_in_flight", (("endpoint", "chat"), ("model", "a"))] == 2
    assert told["gateway_build_info", (("revision", "abc"), ("version", "1"))] == 1


def test_of_a_dead_process_stays_what_it_counted_and_not_what_it_was_doing() -> None:
    dead = worker("a", "b").snapshot()
    told = ours(merge([Metrics().snapshot(), without_gauges(dead)]))
    assert told["gateway_requests_total", (("endpoint", "chat"), ("model", "a"), ("outcome", "ok"))] == 1
    assert told["gateway_request_seconds_sum", (("endpoint", "chat"), ("model", "b"), ("stream", "false"))] == 0.5
    assert not [key for key in told if key[0] in ("gateway_in_flight", "gateway_build_info")]


def test_the_remains_of_many_add_up() -> None:
    gone = MetricsSnapshot()
    for _ in range(3):
        gone = merge([gone, without_gauges(worker("a").snapshot())])
    calls = ours(gone)["gateway_requests_total", (("endpoint", "chat"), ("model", "a"), ("outcome", "ok"))]
    assert calls == 3


PROCESS = {  # one process, another, both
    "process_resident_memory_bytes": (5.0, 7.0, 12.0),
    "process_virtual_memory_bytes": (5.0, 7.0, 12.0),
    "process_cpu_seconds_total": (5.0, 7.0, 12.0),
    "process_start_time_seconds": (5.0, 7.0, 5.0),
    "process_open_fds": (5.0, 7.0, 7.0),
    "process_max_fds": (5.0, 7.0, 5.0),
}


@pytest.mark.parametrize("name", PROCESS)
@pytest.mark.parametrize("order", [1, -1], ids=["one first", "other first"])
def test_what_the_processes_tell_of_themselves_is_combined_by_its_meaning(name: str, order: int) -> None:
    *each, both = PROCESS[name]
    tallies = [Metrics().snapshot() for _ in each]
    for told, value in zip(tallies, each[::order], strict=True):
        for family in told.process:
            family.samples = [sample._replace(value=value) for sample in family.samples if sample.name == name]
    assert {key: value for key, value in series(merge(tallies)).items() if "process_" in key[0]} == {(name, ()): both}


def test_a_tally_travels_between_processes() -> None:
    told = worker("a").snapshot()
    assert series(pickle.loads(pickle.dumps(told))) == series(told)


def test_merging_leaves_the_tallies_as_they_are() -> None:
    one, other = worker("a").snapshot(), worker("a").snapshot()
    before = series(one), series(other)
    merge([one, other])
    assert (series(one), series(other)) == before
