"""The metrics of several processes are combined to one page, each metric by its rule."""

from __future__ import annotations

import pickle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.merge import MetricsSnapshot, merge, without_gauges
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(snapshot: MetricsSnapshot) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(snapshot.exposition().decode())
        for sample in family.samples
    }


def ours(snapshot: MetricsSnapshot) -> Series:
    return {key: value for key, value in series(snapshot).items() if key[0].startswith("gateway_")}


def worker(*models: str) -> Metrics:
    """The metrics of a worker that has finished a call to each model, and has one running."""
    metrics = Metrics()
    for number, model in enumerate(models):
        metrics.record(Record(f"req_{number}", "chat", model, "ok", 200, False, duration=0.25 * (number + 1)))
    metrics.in_flight["chat", "a"].value += 1
    metrics.built("1", "abc")
    return metrics


def test_the_page_of_one_process_has_all_of_its_metrics() -> None:
    metrics = worker("a", "b")
    own = [line for line in metrics.exposition().decode().splitlines() if "process_" not in line]
    snapshot = [
        line for line in merge([metrics.snapshot()]).exposition().decode().splitlines() if "process_" not in line
    ]
    assert snapshot == own


def test_counts_and_observations_are_added_and_the_build_appears_once() -> None:
    snapshot = ours(merge([worker("a", "b").snapshot(), worker("b").snapshot()]))
    calls = {
        dict(labels)["model"]: value for (name, labels), value in snapshot.items() if name == "gateway_requests_total"
    }
    assert calls == {"a": 1, "b": 2}
    b = (("endpoint", "chat"), ("model", "b"), ("stream", "false"))
    assert snapshot["gateway_request_seconds_count", b] == 2
    assert snapshot["gateway_request_seconds_sum", b] == 0.75
    endpoint, *further = b
    assert snapshot["gateway_request_seconds_bucket", (endpoint, ("le", "0.3"), *further)] == 1
    assert snapshot["gateway_request_seconds_bucket", (endpoint, ("le", "+Inf"), *further)] == 2
    assert snapshot["gateway_in_flight", (("endpoint", "chat"), ("model", "a"))] == 2
    assert snapshot["gateway_build_info", (("revision", "abc"), ("version", "1"))] == 1


def test_counters_of_an_ended_process_are_kept_and_its_gauges_are_not() -> None:
    dead = worker("a", "b").snapshot()
    snapshot = ours(merge([Metrics().snapshot(), without_gauges(dead)]))
    assert snapshot["gateway_requests_total", (("endpoint", "chat"), ("model", "a"), ("outcome", "ok"))] == 1
    assert snapshot["gateway_request_seconds_sum", (("endpoint", "chat"), ("model", "b"), ("stream", "false"))] == 0.5
    assert not [key for key in snapshot if key[0] in ("gateway_in_flight", "gateway_build_info")]


def test_the_counters_of_several_ended_processes_add_up() -> None:
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
def test_process_metrics_are_combined_by_their_rule(name: str, order: int) -> None:
    *each, both = PROCESS[name]
    snapshots = [Metrics().snapshot() for _ in each]
    for one, value in zip(snapshots, each[::order], strict=True):
        for family in one.process:
            family.samples = [sample._replace(value=value) for sample in family.samples if sample.name == name]
    assert {key: value for key, value in series(merge(snapshots)).items() if "process_" in key[0]} == {(name, ()): both}


def test_a_snapshot_can_be_pickled() -> None:
    snapshot = worker("a").snapshot()
    assert series(pickle.loads(pickle.dumps(snapshot))) == series(snapshot)


def test_merging_does_not_change_the_snapshots() -> None:
    one, other = worker("a").snapshot(), worker("a").snapshot()
    before = series(one), series(other)
    merge([one, other])
    assert (series(one), series(other)) == before


def test_no_sum_becomes_smaller_when_a_process_ends() -> None:
    first, second, third = (Metrics() for _ in range(3))
    for metrics, seconds in ((first, 0.3), (second, 0.2), (third, 0.1)):
        metrics.record(Record("req", "chat", "m", "ok", 200, False, duration=seconds))
    running = [one.snapshot() for one in (first, second, third)]
    after = merge([without_gauges(merge(running[1:])), running[0]])
    name = ("gateway_request_seconds_sum", (("endpoint", "chat"), ("model", "m"), ("stream", "false")))
    assert 0.3 + 0.2 + 0.1 != 0.2 + 0.1 + 0.3  # as numbers
    assert series(after)[name] == series(merge(running))[name] == 0.6
