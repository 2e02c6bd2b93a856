"""What is asked of the subjects? One row a scenario: how it is measured, with which size, by whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bench.variants import GROWTH, LAYERS

GATEWAYS = ("gateway", "gateway-chat")
ROUTERS = ("nginx", "sglang-router", "vllm-router-rr", "vllm-router")
SLOW = ("portkey", "litellm-proxy")
EVERYONE = ("direct", *GATEWAYS, *ROUTERS, *SLOW)
QUESTION = "What is 17 plus 25? Answer with the number only."


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measurement, made of each subject in each round."""

    group: str
    name: str
    says: str
    kind: str
    """Which function of ``bench.measure`` measures it."""
    subjects: tuple[str, ...]
    count: int = 0
    """Connections or streams."""
    turns: int = 1
    size: int = 0
    """Bytes of the last message; 0: one short question."""
    gap_ms: float = 20.0
    events: int = 50


def _calls(count: int) -> Scenario:
    return Scenario(
        "nonstream", f"nonstream@{count}", f"small chat request, {count} connections", "calls", EVERYONE, count
    )


def _streams(count: int, events: int = 50) -> Scenario:
    says = f"{count} streams of {events} events, one every 20 ms"
    name = f"stream@{count}" if events == 50 else f"stream@{count}x{events}"
    return Scenario("stream", name, says, "streams", EVERYONE, count, events=events)


def _turns(turns: int) -> Scenario:
    says = f"conversation of {turns} turns, 8 connections"
    return Scenario("turns", f"turns@{turns}", says, "calls", ("direct", *GATEWAYS, *ROUTERS), 8, turns)


def _prompt(size: int, name: str) -> Scenario:
    says = f"one message of {name}, 4 connections"
    return Scenario("prompt", f"prompt@{name}", says, "calls", ("direct", *GATEWAYS, *ROUTERS), 4, size=size)


def _idle(count: int) -> Scenario:
    says = f"{count} streams waiting for their second event: memory, and the way back when all clients leave"
    subjects = (*GATEWAYS, *ROUTERS)
    return Scenario("idle", f"idle@{count}", says, "idle", subjects, count, gap_ms=600_000, events=2)


PROMPTS = {"1KB": 1 << 10, "32KB": 1 << 15, "256KB": 1 << 18, "1MB": 1 << 20}
GROWN = ("gateway", *(f"gateway+{name}" for name in GROWTH))
LAYERED = ("gateway", *(f"gateway+{name}" for name in LAYERS))
_ROWS = (
    *(_calls(count) for count in (1, 32, 256)),
    *(_streams(count) for count in (128, 256, 384)),
    _streams(128, 250),
    *(_turns(turns) for turns in (1, 10, 50, 200)),
    *(_prompt(size, name) for name, size in PROMPTS.items()),
    *(_idle(count) for count in (2000, 5000)),
    Scenario(
        "startup", "startup", "from exec to the first answer; memory at rest", "startup", ("gateway", *ROUTERS, *SLOW)
    ),
    Scenario("growth", "growth@32", "32 connections against larger configurations", "calls", GROWN, 32),
    Scenario("growth", "growth-start", "start-up and memory of larger configurations", "startup", GROWN),
    Scenario("layers", "layers@32", "32 connections, one layer changed at a time", "calls", LAYERED, 32),
    Scenario(
        *("litellm", "litellm@32", "through the LiteLLM SDK, beside the bare SDK in a loop", "sdk"),
        ("gateway-litellm", "litellm-sdk"),
        32,
    ),
    Scenario(
        "renders", "renders", "prompts rendered a second, in process", "renders", ("gateway", "opencompass", "lazyllm")
    ),
)
SCENARIOS: dict[str, Scenario] = {row.name: row for row in _ROWS}
GROUPS = tuple(dict.fromkeys(row.group for row in SCENARIOS.values()))


def chosen(only: tuple[str, ...]) -> list[Scenario]:
    """The scenarios of these groups or names; all, if none are given. ``KeyError`` with a name that is neither."""
    for name in only:
        if name not in SCENARIOS and name not in GROUPS:
            raise KeyError(name)
    return [row for row in SCENARIOS.values() if not only or row.name in only or row.group in only]


def body(scenario: Scenario, path: str, extra: Mapping[str, object], stream: bool) -> bytes | None:
    """A subject's request; None where the path takes none."""
    if not path.endswith("/completions"):
        return None
    last = QUESTION if not scenario.size else (QUESTION + " ") * (scenario.size // (len(QUESTION) + 1) + 1)
    last = last[: scenario.size or None]
    asked: dict[str, object] = {"model": "bench"}
    if path.endswith("/chat/completions"):
        talk: list[dict[str, str]] = []
        for number in range(scenario.turns - 1):
            talk += [{"role": "user", "content": f"{number}: {QUESTION}"}, {"role": "assistant", "content": "42"}]
        asked["messages"] = [*talk, {"role": "user", "content": last}]
    else:
        asked["prompt"] = last
    asked |= {"max_tokens": 64, "temperature": 0, **({"stream": True} if stream else {}), **extra}
    return json.dumps(asked).encode()
