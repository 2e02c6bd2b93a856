"""Builds the objects that serve one configuration, and connects them (the composition root).

The delivery layers of each model, from the client to the engine:

    ReasoningFirst  makes two calls if a model reasons before an answer that must be JSON; outside the recording and
                    the cache, which handle the two calls separately
    Recording       stores the events of recorded calls; outside the cache, so that cached answers are recorded too
    Coalescing      makes one call of equal requests at the same time; outside the cache, so that a request that begins
                    while an equal answer is stored finds this answer
    Cache           answers a repeated request from a store; outside the layers below, so that only complete answers are
                    stored, and a cached answer uses none of these layers
    SplitCalls      sends one call for each choice, in sequence, if an engine accepts no list of prompts or ignores
                    ``n``; outside the timeouts, so that the idle time is measured for each call separately
    Timeouts        limits the total time and the idle time; outside failover, so that one limit covers all attempts
    Failover        tries another target, or the same target again, until an answer begins; the load balancer and the
                    circuit breakers of the targets decide the order, and the retry budget limits the attempts
    TracedTarget    makes the span of an attempt, whose trace the target gets (one per target)
    FirstTokenGate  waits for the first content, so that an earlier failure can be retried (one gate per target)
    a backend       completions, chat, litellm, embedded, scripted or replay (one backend per target)

Embedded models accept lists and ``n``, so they have no ``SplitCalls``. A layer around one target or all targets is a
line of ``_delivery``, one around the cache of ``_route``. State that must survive a reload is a field of
``SharedResources``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from gateway.backend.engines import EngineCapabilities, declared_capabilities, prompt_logprobs_of
from gateway.backend.http_client.client import HttpClient
from gateway.backend.kinds import BACKEND_FACTORIES, LoadEngine
from gateway.backend.openai.error_mapping import address_without_secrets
from gateway.backend.openai.request.constraint import refusing_target
from gateway.calls.route import Route, answer_headers
from gateway.calls.stack import Stack
from gateway.calls.timeline import CallTimeline
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.sections.targets import locate
from gateway.config.snapshot import MediaPolicy, ModelSpec, Snapshot, StoreSpec, TargetSpec
from gateway.core.errors import ConfigError, Problem
from gateway.core.exchange import ENDPOINT_NAMES, Backend
from gateway.policy.access.api_keys import Keyring
from gateway.policy.access.limits import Concurrency, Limiter
from gateway.policy.access.rates import MemoryRates, RateStore
from gateway.policy.admit.parameters import ParameterPolicy
from gateway.policy.deliver.first_token_gate import FirstTokenGate
from gateway.policy.deliver.targets.circuit_breaker import BreakerKey, CircuitBreakers
from gateway.policy.deliver.targets.failover import Failover
from gateway.policy.deliver.targets.load_balancer import BALANCERS, Replica
from gateway.policy.deliver.targets.retry import RetryPolicy
from gateway.policy.deliver.targets.retry_budget import RetryBudget
from gateway.policy.deliver.timeouts import Timeouts
from gateway.telemetry.attempts import AttemptObserver
from gateway.telemetry.metrics import Metrics
from metatemplate.errors import InvalidFile
from metatemplate.files.template_file import output_form
from metatemplate.markers.marker_rule import MarkerRule
from metatemplate.markers.marker_set import MarkerSet, fold, texts_of
from metatemplate.markers.role_boundaries import SafeRenderer
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build, build_for_prompt_lists, output_parsing
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.dialogue import EMPTY_MAPPING

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import EmbeddedEngine
    from gateway.backend.openai.engine_tokenizer import EngineTokenizer
    from gateway.backend.openai.tokenizer_client import TokenizerClient
    from gateway.calls.preparation.reasoning_replay import ReasoningReplay
    from gateway.calls.tracing.spans import Tracing
    from gateway.policy.admit.media import MediaRule
    from gateway.policy.deliver.targets.health_check import HealthCheck
    from gateway.storage.cache_store import CacheStore
    from gateway.storage.recorder import Recorder
    from gateway.stream.json_schema.checker import SchemaChecker
    from gateway.wire.redaction import Redactor
    from metatemplate.datasets.prompt import DatasetPrompt
    from metatemplate.markers.prompt_ids import PromptIds
    from metatemplate.markers.prompt_tokens import PromptTokenizer

LOG = logging.getLogger("gateway.assembly")
ENGINE_CACHE = "gateway.backend.embedded.cache:EngineCache"
TRACERS = "gateway.calls.tracing.tracers:Tracers"
INLINE_BUDGET = "gateway.policy.admit.media_files:InlineBudget"


@dataclass(frozen=True, slots=True)
class SharedResources:
    """Owns all state that survives a reload of the configuration: connections, loaded engines, metrics."""

    client: HttpClient
    metrics: Metrics
    breakers: CircuitBreakers
    rates: RateStore
    """The request and token rates that all workers of this gateway share. Not used if the configuration has a store."""
    concurrency: Concurrency
    caches: dict[Path | StoreSpec | None, CacheStore] = field(default_factory=dict)
    """The cache stores that configurations have named so far; None: in memory."""
    stores: dict[StoreSpec, RateStore] = field(default_factory=dict)
    """The rate stores that configurations have named so far."""
    recorders: dict[Path, Recorder] = field(default_factory=dict)
    """The recorders of the files that configurations have named so far."""
    _single: dict[str, Any] = field(default_factory=dict)

    def load_engine(self, target: TargetSpec) -> EmbeddedEngine:
        """Return the engine of an embedded target. Blocks. Raises ``ConfigError``."""
        return cast("EmbeddedEngine", self.single(ENGINE_CACHE).get(target))

    def single(self, class_name: str) -> Any:
        """Return the only object of a class, such as ``gateway.policy.admit.media_files:InlineBudget``.

        It is imported and made when a configuration first needs it.
        """
        if class_name not in self._single:
            self._single[class_name] = resolve_name(class_name)()
        return self._single[class_name]


def open_shared_resources(metrics: Metrics, rates: RateStore | None = None) -> SharedResources:
    """Create the shared resources of one process. ``rates``: None if the gateway has only this process."""
    return SharedResources(
        client=HttpClient(),
        metrics=metrics,
        breakers=CircuitBreakers(metrics.target),
        rates=rates or MemoryRates(),
        concurrency=Concurrency(metrics.queue_length),
    )


def assemble(snapshot: Snapshot, shared: SharedResources) -> Stack:
    """Build the stack for a configuration snapshot, and load its embedded engines.

    Raises ``ConfigError`` with the problems of all models, such as an engine that cannot be loaded.
    """
    if snapshot.keys:
        import_module("gateway.config.sections.keys")  # has the note on an expired key
    if snapshot.server.cors.origins:
        import_module("gateway.edge.cors")
    problems, redactor, tracing = _Problems(), _redactor(snapshot), _tracing(snapshot, shared)
    parts = PromptParts(dataset_prompts(snapshot), shared.load_engine)
    routes = {
        name: _route(model, snapshot, parts, shared, problems, redactor) for name, model in snapshot.models.items()
    }
    if problems.found:
        raise ConfigError(tuple(problems.found))
    found = {name: route for name, route in routes.items() if route}
    return Stack(
        snapshot=snapshot,
        routes={
            name: replace(route, fallbacks={other: found[other] for other in route.spec.fallback})
            for name, route in found.items()
        },
        keyring=Keyring(snapshot.keys, snapshot.models),
        limiter=Limiter(snapshot.models, snapshot.keys, _rate_store(snapshot, shared), shared.concurrency),
        recorder=_recorder(snapshot.recordings.path, shared),
        redactor=redactor,
        health_checks=tuple([check for model in snapshot.models.values() for check in _health_checks(model, shared)]),
        timeline=CallTimeline if tracing is None else tracing.timeline,
    )


def dataset_prompts(snapshot: Snapshot) -> Mapping[str, DatasetPrompt]:
    """Return the dataset prompts of a configuration, by name."""
    if not snapshot.prompts:
        return EMPTY_MAPPING
    from metatemplate.datasets.prompt import DatasetPrompt

    import_module("gateway.calls.scoring.candidates")  # explains prompts with labels
    return {name: DatasetPrompt(spec) for name, spec in snapshot.prompts.items()}


class _Problems:
    """The problems found while the stack is built. Each problem is listed once, with its file and line."""

    def __init__(self) -> None:
        self.found: dict[Problem, None] = {}

    @contextmanager
    def of(self, model: ModelSpec, position: int = 0) -> Iterator[None]:
        """Return a context manager that collects the problems of an error raised in its block.

        ``position``: the index of the target of the model that the block builds.
        """
        try:
            yield
        except (ConfigError, InvalidFile) as error:
            self.found |= dict.fromkeys([locate(problem, model, position) for problem in error.problems])


def _load_engine(target: TargetSpec) -> EmbeddedEngine:
    return cast("EmbeddedEngine", resolve_name(ENGINE_CACHE)().get(target))


class PromptParts:
    """Dataset prompts, tokenizers, renderers and markers of a configuration. Models with the same files share them."""

    def __init__(self, prompts: Mapping[str, DatasetPrompt] = EMPTY_MAPPING, load: LoadEngine = _load_engine) -> None:
        """``load``: loads the engine of an embedded target."""
        self.prompts, self.load_engine = prompts, load
        self._tokenizer = cache(Tokenizer)
        self.prompt_tokenizers: dict[object, PromptTokenizer] = {}
        """What encodes prompts as token ids, of all models that need it."""
        self._made: dict[tuple[int, int], tuple[Tokenizer | None, Template, Callable[..., MarkerSet]]] = {}
        """The identities of a template and a tokenizer → what is made of both, which keeps them alive."""

    def of(self, model: ModelSpec) -> tuple[Tokenizer | None, Template, Callable[..., MarkerSet]]:
        """Return a model's tokenizer, its renderer, and the function that returns its markers, or those after ``fold``.

        Blocks. The tokenizer is None if the gateway does not have it.
        """
        spec, tokens = model.template, None
        if model.tokenizer is not None:
            tokens = self._tokenizer(model.tokenizer)
        elif BACKEND_KINDS[model.targets[0].speaks].in_process:
            tokens = self.load_engine(model.targets[0]).vocabulary
        key = id(spec), id(tokens)
        if key not in self._made:
            template, added = build(spec), dict(tokens.added_tokens()) if tokens is not None else {}
            if spec.markers is not None:
                added |= dict.fromkeys(spec.markers.tokens, True)
            self._made[key] = tokens, template, cache(partial(MarkerSet, texts_of(template), added))
        return self._made[key]


def bare_route(model: ModelSpec, parts: PromptParts | None = None) -> Route:
    """Return the route of a model without a backend, for commands that only render prompts."""
    parts = parts or PromptParts()
    (tokens, template, markers_of), form = parts.of(model), output_form(model.template)
    defaults, prompter = declared_capabilities(model.targets[0]).explicit, model.template.prompter
    markers = markers_of()
    policy, prompt_tokens, ids = model.policy.markers, None, any(target.prompt == "ids" for target in model.targets)
    if ids or tokens is not None or "token_ids" in (policy.token_like, policy.text_like):
        from gateway.policy.admit.token_markers import with_tokenizer

        policy, prompt_tokens = with_tokenizer(model, markers, tokens, parts.prompt_tokenizers)
    folded = markers_of(fold) if policy.normalize == "nfkc" else None
    rule = MarkerRule(markers, policy.token_like, policy.text_like, folded)
    template_id = f"{model.template.name}@sha256:{model.template.digest}"
    renderer = SafeRenderer(template, rule if markers.token_like or markers.text_like else None)
    return Route(
        spec=model,
        form=form,
        template=template,
        renderer=renderer,
        prompt_lists=build_for_prompt_lists(model.template) if parts.prompts else None,
        prompts=parts.prompts,
        parameters={
            endpoint: ParameterPolicy(
                model.policy.params, endpoint, form, defaults, tools=model.template.tools is not None, omit=model.omit
            )
            for endpoint in ENDPOINT_NAMES
        },
        media=_media_rule(model.policy.media) if form == "messages" else None,
        template_id=template_id,
        headers=answer_headers(model, template_id),
        raw_headers=answer_headers(model, "none"),
        eos_stops=_eos_stops(model, tokens),
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        prompt_ids=_prompt_ids(model, prompt_tokens, renderer) if ids and prompt_tokens is not None else None,
        max_model_len=_length(model, parts.load_engine),
        passes_template_kwargs=all(
            BACKEND_KINDS[target.speaks].form == "messages" and declared_capabilities(target).renders
            for target in model.targets
        ),
        prompt_logprobs=prompt_logprobs_of(model.targets, text=form == "text"),
        output_parsing=output_parsing(model.template),
        default_tools=prompter.default_tools if prompter is not None and form == "messages" else (),
    )


def _prompt_ids(model: ModelSpec, tokens: PromptTokenizer, renderer: SafeRenderer) -> PromptIds:
    from gateway.policy.admit.token_markers import prompt_ids

    return prompt_ids(model, tokens, renderer)


def _route(
    model: ModelSpec,
    snapshot: Snapshot,
    parts: PromptParts,
    shared: SharedResources,
    problems: _Problems,
    redactor: Redactor | None,
) -> Route | None:
    backend, rows = _delivery(model, snapshot, shared, problems, str if redactor is None else redactor.log_text)
    if model.policy.cache.mode != "off":
        from gateway.policy.deliver.cache import Cache
        from gateway.storage.open_store import cache_store

        observe = partial(shared.metrics.count, "gateway_cache_requests_total", model.name)
        backend = Cache(backend, cache_store(snapshot.cache, snapshot.store, shared.caches), model, observe)
        if model.policy.cache.coalesce:
            from gateway.policy.deliver.coalescing import Coalescing

            backend = Coalescing(backend, model, observe)
    if model.policy.record != "off":
        from gateway.policy.deliver.recording import Recording

        backend = Recording(backend)
    if model.template.thinking is not None and output_form(model.template) == "text":
        from gateway.policy.deliver.reasoning_first import ReasoningFirst

        backend = ReasoningFirst(backend, model.policy.delivery.timeout.total)
    media = model.policy.media
    if not all(row.media_addresses for row in rows):
        media = replace(media, https="refuse", file="refuse" if media.file == "pass" else media.file)
    with problems.of(model):  # may load the first target's engine, which then also counts tokens
        route = bare_route(model, parts)
        rule = route.renderer.rule
        if rule is not None and (short := rule.markers.dropped):
            LOG.warning(
                "model %s: markers of fewer than 3 characters are not searched for in requests: %s",
                model.name,
                ", ".join(map(ascii, short)),
            )
        return replace(
            route,
            backend=backend,
            schemas=_schema_checker(model, shared),
            engine_tokenizer=_engine_tokenizer(model, shared),
            tokenizer_client=_tokenizer_client(model, shared),
            reasoning=_reasoning_replay(route, snapshot, shared),
            media=route.media and _media_rule(media, shared.single(INLINE_BUDGET), snapshot.server.max_inlined_media),
        )
    return None


def _delivery(
    model: ModelSpec, snapshot: Snapshot, shared: SharedResources, problems: _Problems, redact: Callable[[str], str]
) -> tuple[Backend, list[EngineCapabilities]]:
    delivery, tracing = model.policy.delivery, _tracing(snapshot, shared)
    replicas: list[Replica] = []
    rows: list[EngineCapabilities] = []
    urls: dict[str, str] = {}
    for position, target in enumerate(model.targets):
        with problems.of(model, position):
            backend = BACKEND_FACTORIES[target.speaks](
                target, shared.client, shared.load_engine, delivery.timeout.connect
            )
            gate: Backend = FirstTokenGate(backend, delivery.timeout.first_token)
            replicas.append(
                Replica(
                    label=target.label,
                    backend=gate if tracing is None else tracing.around(gate, target),
                    breaker=shared.breakers.get(_breaker_key(model, target)),
                    weight=target.weight,
                )
            )
            url = address_without_secrets(target.url).rstrip("/")
            urls[target.label] = url and url + getattr(backend, "path", "")
            rows.append(backend.capabilities)

    observer = AttemptObserver(model.name, urls, shared.metrics, redact)
    balancer = BALANCERS[delivery.balance](replicas)
    exhausted = partial(shared.metrics.count, "gateway_retry_budget_exhausted_total", model.name)
    budget = RetryBudget(delivery.retry.budget, exhausted)
    failover = Failover(balancer, RetryPolicy(delivery.retry.attempts), budget, observer)
    stack: Backend = Timeouts(failover, delivery.timeout.idle, delivery.timeout.total, observer)
    if not all(BACKEND_KINDS[target.speaks].in_process for target in model.targets):
        from gateway.policy.deliver.split_calls import SplitCalls, UpstreamCapabilities

        capabilities = UpstreamCapabilities(
            lists=_all([row.lists for row in rows]),
            choices=_all([row.choices for row in rows]),
            streamed_choices=all(row.streamed_choices for row in rows),
        )
        stack = SplitCalls(stack, capabilities, delivery.timeout.total)
    return stack, rows


def _media_rule(policy: MediaPolicy, *inlined: Any) -> MediaRule:
    """Return the rule of a policy. ``inlined``: the budget of the files that calls send inline, and its limit."""
    from gateway.policy.admit.media import MediaRule

    return MediaRule(policy, *inlined)


def _schema_checker(model: ModelSpec, shared: SharedResources) -> SchemaChecker | None:
    """Return the checker for structured output. None if the model reads strings, and no target constrains an answer."""
    if output_form(model.template) == "text" and model.template.tools is None and refusing_target(model.targets):
        return None
    import_module("gateway.calls.preparation.structured_output")
    return cast("SchemaChecker", shared.single("gateway.stream.json_schema.checker:SchemaChecker"))


def _reasoning_replay(route: Route, snapshot: Snapshot, shared: SharedResources) -> ReasoningReplay | None:
    """Return what puts back reasoning, which is kept in the store of the cache. None without ``reasoning: replay``.

    Blocks. Raises ``ConfigError`` if the model or the configuration does not allow it.
    """
    if route.spec.policy.reasoning == "off":
        return None
    from gateway.calls.preparation.reasoning_replay import ReasoningReplay
    from gateway.storage.open_store import cache_store

    store = cache_store(snapshot.cache, snapshot.store, shared.caches)
    return ReasoningReplay(route.spec.policy, route.template, snapshot, store)


def _redactor(snapshot: Snapshot) -> Redactor | None:
    """Return the patterns of a configuration. None if it has no patterns."""
    if not snapshot.redact:
        return None
    from gateway.wire.redaction import Redactor

    return Redactor(snapshot.redact)


def _recorder(path: Path | None, shared: SharedResources) -> Recorder | None:
    """Return the recorder of a file, which is the same after a reload. ``path``: None if nothing is recorded."""
    if path is None:
        return None
    if path not in shared.recorders:
        from gateway.storage.recorder import Recorder

        count = shared.metrics.count
        shared.recorders[path] = Recorder(
            path,
            partial(count, "gateway_recordings_dropped_total"),
            looping=lambda model: count("gateway_answers_cut_total", model, "looping"),
        )
    return shared.recorders[path]


def _tracing(snapshot: Snapshot, shared: SharedResources) -> Tracing | None:
    """Return what makes spans, which is the same after a reload with the same settings. None if there are none."""
    return cast("Tracing", shared.single(TRACERS).open(snapshot.tracing)) if snapshot.tracing.otlp else None


def _rate_store(snapshot: Snapshot, shared: SharedResources) -> RateStore:
    spec = snapshot.store
    if not spec.url:
        return shared.rates
    from gateway.policy.access.redis_rates import RedisRates

    if spec not in shared.stores:
        observe = partial(shared.metrics.count, "gateway_store_failures_total")
        shared.stores[spec] = RedisRates(spec, observe, snapshot.server.workers)
    return shared.stores[spec]


def _health_checks(model: ModelSpec, shared: SharedResources) -> Iterator[HealthCheck]:
    policy = model.policy.delivery.health_check
    for target in model.targets:
        if policy.path and BACKEND_KINDS[target.speaks].openai_server:
            from gateway.backend.openai.health import HealthProbe
            from gateway.policy.deliver.targets.health_check import HealthCheck

            probe = HealthProbe(target, shared.client, policy.path, policy.timeout, model.policy.name)
            yield HealthCheck(shared.breakers.get(_breaker_key(model, target)), probe.check, policy.interval)


def _breaker_key(model: ModelSpec, target: TargetSpec) -> BreakerKey:
    place = f"{target.speaks} {target.url or target.local_path or ''} {target.model} {target.proxy}{target.authorities}"
    return BreakerKey(
        model=model.name,
        label=target.label,
        place=place,
        policy=model.policy.delivery.breaker,
        health_check=model.policy.delivery.health_check.path,
    )


def _all(known: list[bool | None]) -> bool | None:
    """Return whether all targets of a model accept a kind of input in one call; None if it is not known."""
    return None if None in known and False not in known else all(known)


def _eos_stops(model: ModelSpec, tokens: Tokenizer | None) -> tuple[str, ...]:
    """Return the text of the template's ``eos_token_id``, for engines that accept only strings as stops."""
    eos = model.template.eos_token_id
    text = tokens.detokenize([eos]) if tokens is not None and eos is not None else ""
    return (text,) if text.strip() else ()


def _engine_tokenizer(model: ModelSpec, shared: SharedResources) -> EngineTokenizer | None:
    """Return the object that counts tokens with the first target's engine.

    None if the model has a configured tokenizer and context length, or if the engine cannot count tokens.
    """
    first = model.targets[0]
    counted = model.tokenizer is not None and model.max_model_len is not None
    if counted or BACKEND_KINDS[first.speaks].form != "text" or not declared_capabilities(first).renders:
        return None
    from gateway.backend.openai.engine_tokenizer import EngineTokenizer

    return EngineTokenizer(first, shared.client, model.max_model_len)


def _tokenizer_client(model: ModelSpec, shared: SharedResources) -> TokenizerClient | None:
    first = model.targets[0]
    if not (BACKEND_KINDS[first.speaks].openai_server and declared_capabilities(first).renders):
        return None
    from gateway.backend.openai.tokenizer_client import TokenizerClient

    return TokenizerClient(first, shared.client, model.policy.delivery.timeout.connect)


def _length(model: ModelSpec, load_engine: LoadEngine) -> int | None:
    """Return the context length in tokens from the configuration, or else from the embedded engine."""
    first = model.targets[0]
    if model.max_model_len is None and BACKEND_KINDS[first.speaks].in_process:
        return load_engine(first).max_model_len
    return model.max_model_len
