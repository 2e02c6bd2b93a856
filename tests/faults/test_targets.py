"""A model with several targets, of which some fail (rows B25 and T4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Gateway, eventually, gateway
from tests.support.upstream.server import FaultyUpstream, refused_url
from tests.support.world import HELLO

POLICY = "delivery: {breaker: {failures: 3, successes: 1, open: 200ms}, retry: {attempts: 2}}\n"
PATIENT = POLICY.replace("200ms", "100s")
CHECKED = "delivery: {health_check: {path: /health/ready, interval: 50ms, timeout: 20s}}\n"


def targets(*urls: str) -> str:
    return ", ".join(f'{{speaks: chat, url: "{url}", model: m}}' for url in urls)


@pytest.fixture(scope="module")
def several(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    files = {"policies/breaker.yaml": POLICY, "policies/patient.yaml": PATIENT}
    models = {
        "one-refuses": (up.url("ok"), refused_url(), up.url("ok")),
        "one-breaks-off": (up.url("ok"), up.url("drop-midstream")),
        "one-limits": (up.url("ok"), up.url("429-retry-after", s=30)),
        "one-recovers": (up.url("ok"), up.url("flaky", fail=3)),
        "all-fail": (up.url("500"), up.url("500")),
    }
    config = "models:\n" + "".join(
        f"  {name}: {{template: chat, policy: {'patient' if name == 'one-breaks-off' else 'breaker'}, "
        f"targets: [{targets(*urls)}]}}\n"
        for name, urls in models.items()
    )
    with gateway(tmp_path_factory.mktemp("several"), config, files=files) as served:
        yield served


def attempts(served: Gateway, model: str, position: int, outcome: str) -> float:
    return served.counted("gateway_attempts_total", model=model, target=f"{model}/{position}", outcome=outcome)


def is_avoided(served: Gateway, model: str, position: int) -> bool:
    return served.metric("gateway_circuit_open", model=model, target=f"{model}/{position}") == 1


def test_a_dead_target_costs_no_call_and_is_soon_avoided(several: Gateway) -> None:
    assert {several.chat("one-refuses").status_code for _ in range(9)} == {200}
    assert attempts(several, "one-refuses", 1, "upstream_unreachable") == 3
    assert is_avoided(several, "one-refuses", 1)


def test_a_target_that_breaks_off_its_streams_is_avoided(several: Gateway) -> None:
    broken = sum('"error"' in several.chat("one-breaks-off", stream=True).text for _ in range(20))
    assert 3 <= broken <= 4, "the end of a call may be noticed after the beginning of the next"
    assert is_avoided(several, "one-breaks-off", 1)


def test_a_rate_limited_target_gets_no_more_calls(several: Gateway) -> None:
    assert {several.chat("one-limits").status_code for _ in range(10)} == {200}
    assert attempts(several, "one-limits", 1, "upstream_rate_limited") == 1
    assert not is_avoided(several, "one-limits", 1)


def test_a_target_that_recovers_is_used_again(several: Gateway) -> None:
    def second_is_avoided() -> bool:
        assert several.chat("one-recovers").status_code == 200
        return is_avoided(several, "one-recovers", 1)

    assert eventually(second_is_avoided)
    assert eventually(lambda: not second_is_avoided())
    assert "one-recovers/1" in {several.chat("one-recovers").headers["x-gateway-target"] for _ in range(2)}


def test_if_all_targets_fail_every_call_is_still_tried(several: Gateway) -> None:
    before = [attempts(several, "all-fail", position, "upstream_error") for position in (0, 1)]
    assert {several.chat("all-fail").json()["error"]["code"] for _ in range(10)} == {"upstream_error"}
    after = [attempts(several, "all-fail", position, "upstream_error") for position in (0, 1)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [10, 10]


def test_a_health_check_finds_a_dead_target_before_a_call_does(tmp_path: Path) -> None:
    engine = "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
    with gateway(tmp_path / "engine", engine, files=HELLO) as server:
        config = (
            f"models: {{m: {{template: chat, policy: checked, targets: [{targets(refused_url(), server.url)}]}}}}\n"
        )
        with gateway(tmp_path / "gateway", config, files={"policies/checked.yaml": CHECKED}) as served:
            assert eventually(lambda: is_avoided(served, "m", 0))
            assert {served.chat("m").headers["x-gateway-target"] for _ in range(6)} == {"m/1"}
            assert attempts(served, "m", 0, "upstream_unreachable") == 0
            assert not is_avoided(served, "m", 1)
