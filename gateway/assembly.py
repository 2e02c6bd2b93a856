"""How is the gateway put together? The one place that names concrete classes.

For each model, from the client's side to the model's:

    FanOut      one call for each choice, where an engine takes no lists or ignores ``n``
    Clocks      bounds the whole answer, and each silence of each call
    Failover    another replica, or one more try, until the answer begins
    Begin       the gate: nothing passes before the first meaningful event (one per target)
    a door      completions, chat, litellm, embedded or scripted (one per target)

A layer that has nothing to do is not in the stack: embedded models take lists and ``n`` themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gateway.backend.chat import ChatBackend
from gateway.backend.completions import CompletionsBackend
from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.engines import ENGINES
from gateway.backend.h1 import H1Client
from gateway.backend.http import HttpClient
from gateway.backend.litellm import LiteLLMBackend
from gateway.backend.scripted import ScriptedBackend
from gateway.backend.tokens import LocalTokens, Tokens
from gateway.config.snapshot import ModelSpec, ServerSpec, Snapshot, TargetSpec
from gateway.config.templates import form
from gateway.core.exchange import Backend
from gateway.pipeline import Route
from gateway.policy.admit.keys import Keyring
from gateway.policy.deliver.begin import Begin
from gateway.policy.deliver.clocks import Clocks
from gateway.policy.deliver.failover import Failover, Replica
from gateway.policy.deliver.fanout import FanOut, Habits
from gateway.telemetry.metrics import Metrics
from gateway.template.build import build


@dataclass(frozen=True, slots=True)
class Doors:
    """What outlives a reload: connections, loaded engines, counters."""

    client: HttpClient
    engines: EngineCache
    metrics: Metrics


def open_doors(server: ServerSpec, metrics: Metrics) -> Doors:
    """What one process shares between all configurations it serves."""
    return Doors(_CLIENTS[server.http_client](), EngineCache(), metrics)


@dataclass(frozen=True, slots=True)
class Stack:
    """One configuration, wired. A call keeps the stack it began with."""

    snapshot: Snapshot
    routes: Mapping[str, Route]
    keyring: Keyring


def assemble(snapshot: Snapshot, doors: Doors) -> Stack:
    """Wire a snapshot; engines load here, so a model that cannot be loaded refuses the whole snapshot."""
    routes = {name: _route(model, doors) for name, model in snapshot.models.items()}
    return Stack(snapshot, routes, Keyring(snapshot.keys))


def bare_route(model: ModelSpec, engines: EngineCache) -> Route:
    """A model that can be rendered for, but not asked: what the verbs of the command line need."""
    tokens = _tokens(model, engines)
    return Route(
        spec=model,
        form=form(model.template),
        template=build(model.template),
        backend=ScriptedBackend(),
        engine_defaults=None if model.targets[0].speaks == "litellm" else ENGINES[model.targets[0].engine].explicit,
        eos_stops=_eos_stops(model, tokens),
        tokens=tokens,
        max_model_len=_length(model, engines),
    )


def _route(model: ModelSpec, doors: Doors) -> Route:
    return replace(bare_route(model, doors.engines), backend=_stack(model, doors))


def _stack(model: ModelSpec, doors: Doors) -> Backend:
    delivery = model.policy.delivery
    replicas = tuple(
        Replica(target.label, Begin(_DOORS[target.speaks](target, model, doors), delivery.first_token))
        for target in model.targets
    )

    def observe(target: str, outcome: str) -> None:
        doors.metrics.attempt(model.name, target, outcome)

    stack: Backend = Clocks(Failover(replicas, delivery.attempts, observe=observe), delivery.idle, delivery.total)
    if any(target.speaks != "embedded" for target in model.targets):
        stack = FanOut(stack, _habits(model), delivery.total)
    return stack


def _habits(model: ModelSpec) -> Habits:
    """What every target of the model takes in one call; unsure if one of them is."""
    rows = [ENGINES[target.engine] for target in model.targets]
    return Habits(lists=_all([row.lists for row in rows]), choices=_all([row.choices for row in rows]))


def _all(answers: list[bool | None]) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True


def _embedded(target: TargetSpec, model: ModelSpec, doors: Doors) -> Backend:
    return EmbeddedBackend(target, doors.engines.get(target))


def _scripted(target: TargetSpec, model: ModelSpec, doors: Doors) -> Backend:
    assert target.path is not None
    return ScriptedBackend.from_file(target.path, target.label)


def _aiohttp() -> HttpClient:
    from gateway.backend.aio import AioClient  # 40 ms and 10 MB that most gateways have no use for

    return AioClient()


_CLIENTS: dict[str, Callable[[], HttpClient]] = {"h1": H1Client, "aiohttp": _aiohttp}

_DOORS: dict[str, Callable[[TargetSpec, ModelSpec, Doors], Backend]] = {
    "completions": lambda target, model, doors: CompletionsBackend(
        target, doors.client, connect_timeout=model.policy.delivery.connect
    ),
    "chat": lambda target, model, doors: ChatBackend(
        target, doors.client, connect_timeout=model.policy.delivery.connect
    ),
    "litellm": lambda target, model, doors: LiteLLMBackend(target),
    "embedded": _embedded,
    "scripted": _scripted,
}


def _tokens(model: ModelSpec, engines: EngineCache) -> Tokens | None:
    if model.tokenizer is not None:
        return LocalTokens(model.tokenizer)
    first = model.targets[0]
    return engines.get(first) if first.speaks == "embedded" else None


def _eos_stops(model: ModelSpec, tokens: Tokens | None) -> tuple[str, ...]:
    """The text of the template's ``eos_token_id``, for engines that take no ids (design 4.2)."""
    eos = model.template.eos_token_id
    text = tokens.detokenize([eos]) if tokens is not None and eos is not None else ""
    return (text,) if text.strip() else ()


def _length(model: ModelSpec, engines: EngineCache) -> int | None:
    """The context in tokens: as configured, or the embedded engine's own."""
    first = model.targets[0]
    if model.max_model_len is None and first.speaks == "embedded":
        return engines.get(first).max_model_len
    return model.max_model_len
