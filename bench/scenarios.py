"""The scenarios: how each is measured, its size, and the systems under test; and the request body of a scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bench.gateway_variants import GROWTH, LAYERS

GATEWAYS = ("gateway", "gateway-chat")
ROUTERS = ("nginx", "envoy", "smg", "sglang-router", "vllm-router-rr", "vllm-router")
SLOW_PROXIES = ("ferrogw", "portkey", "litellm-proxy")
ALL_SYSTEMS = ("direct", *GATEWAYS, *ROUTERS, *SLOW_PROXIES)
QUESTION = "What is 17 plus 25? Answer with the number only."


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of load, measured for each of its systems in each round."""

    group: str
    name: str
    description: str
    kind: str
    """Key of ``bench.measure.MEASURE``."""
    systems: tuple[str, ...]
    concurrency: int = 0
    """Connections or streams."""
    turns: int = 1
    message_bytes: int = 0
    """Size of the last message; 0: one short question."""
    interval_ms: float = 20.0
    """Between two events of a stream."""
    events: int = 50
    """Per stream."""


def _nonstream(connections: int) -> Scenario:
    description = f"small chat request, {connections} connections"
    return Scenario("nonstream", f"nonstream@{connections}", description, "nonstream", ALL_SYSTEMS, connections)


def _streams(streams: int, events: int = 50) -> Scenario:
    description = f"{streams} streams of {events} events, one every 20 ms"
    name = f"stream@{streams}" if events == 50 else f"stream@{streams}x{events}"
    return Scenario("stream", name, description, "stream", ALL_SYSTEMS, streams, events=events)


def _turns(turns: int) -> Scenario:
    description = f"conversation of {turns} turns, 8 connections"
    systems = ("direct", *GATEWAYS, *ROUTERS)
    return Scenario("turns", f"turns@{turns}", description, "nonstream", systems, 8, turns)


def _prompt(name: str, size: int) -> Scenario:
    description = f"one message of {name}, 4 connections"
    systems = ("direct", *GATEWAYS, *ROUTERS)
    return Scenario("prompt", f"prompt@{name}", description, "nonstream", systems, 4, message_bytes=size)


def _idle(streams: int) -> Scenario:
    description = (
        f"{streams} streams waiting for their second event: memory, "
        "and time until the upstream is free after all clients disconnect"
    )
    systems = (*GATEWAYS, *ROUTERS)
    return Scenario("idle", f"idle@{streams}", description, "idle", systems, streams, interval_ms=600_000, events=2)


PROMPT_SIZES = {"1KB": 1 << 10, "32KB": 1 << 15, "256KB": 1 << 18, "1MB": 1 << 20}
GROWTH_SYSTEMS = ("gateway", *(f"gateway+{name}" for name in GROWTH))
LAYER_SYSTEMS = ("gateway", *(f"gateway+{name}" for name in LAYERS))
STARTUP_SYSTEMS = ("gateway", *ROUTERS, *SLOW_PROXIES)
LITELLM_SYSTEMS = ("gateway-litellm", "litellm-sdk")
RENDERERS = ("gateway", "opencompass", "lazyllm")
_ROWS = (
    *(_nonstream(connections) for connections in (1, 32, 256)),
    *(_streams(streams) for streams in (64, 128, 256, 384, 1000)),
    _streams(128, 250),
    *(_turns(turns) for turns in (1, 10, 50, 200)),
    *(_prompt(name, size) for name, size in PROMPT_SIZES.items()),
    *(_idle(streams) for streams in (2000, 5000)),
    Scenario("startup", "startup", "from exec to the first response; memory at rest", "startup", STARTUP_SYSTEMS),
    Scenario("growth", "growth@32", "32 connections, larger configurations", "nonstream", GROWTH_SYSTEMS, 32),
    Scenario("growth", "growth-start", "start-up and memory of larger configurations", "startup", GROWTH_SYSTEMS),
    Scenario("layers", "layers@32", "32 connections, one layer changed at a time", "nonstream", LAYER_SYSTEMS, 32),
    Scenario("litellm", "litellm@32", "through the LiteLLM SDK, and the SDK in a loop", "litellm", LITELLM_SYSTEMS, 32),
    Scenario("renders", "renders", "prompts rendered per second, in process", "renders", RENDERERS),
)
SCENARIOS: dict[str, Scenario] = {row.name: row for row in _ROWS}
GROUPS = tuple(dict.fromkeys(row.group for row in SCENARIOS.values()))


def select(only: tuple[str, ...]) -> list[Scenario]:
    """The scenarios of these groups or names; all if ``only`` is empty. Raises ``KeyError`` for an unknown name."""
    for name in only:
        if name not in SCENARIOS and name not in GROUPS:
            raise KeyError(name)
    return [row for row in SCENARIOS.values() if not only or row.name in only or row.group in only]


def request_body(scenario: Scenario, path: str, extra_fields: Mapping[str, object], stream: bool) -> bytes | None:
    """The JSON body of one request; None for a path that takes none."""
    if not path.endswith("/completions"):
        return None
    last = QUESTION
    if size := scenario.message_bytes:
        last = ((QUESTION + " ") * (size // (len(QUESTION) + 1) + 1))[:size]
    body: dict[str, object] = {"model": "bench"}
    if path.endswith("/chat/completions"):
        messages: list[dict[str, str]] = []
        for number in range(scenario.turns - 1):
            messages.append({"role": "user", "content": f"{number}: {QUESTION}"})
            messages.append({"role": "assistant", "content": "42"})
        body["messages"] = [*messages, {"role": "user", "content": last}]
    else:
        body["prompt"] = last
    body |= {"max_tokens": 64, "temperature": 0, **({"stream": True} if stream else {}), **extra_fields}
    return json.dumps(body).encode()
