"""The configuration as frozen values.

Each class of a section is written once: its fields are the settings, with type and kind, default and sentence.
``config/schema`` reads files into these classes, and makes the JSON Schemas and the tables of the documentation.
``config/load.py`` creates a ``Snapshot``; a reload creates a new one. Durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import SecretStr

from gateway.config.schema import kinds
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.kinds import WORDS, Entries, Internal, Section, choice, duration, integer, list_of
from gateway.core.errors import Problem
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.prompt import MarkerAction

if TYPE_CHECKING:
    from metatemplate.datasets.spec import PromptSpec

Engine = Literal["openai", "vllm", "sglang", "llamacpp", "llamacpp-python", "tgi"]


@dataclass(frozen=True, slots=True)
class CorsSpec:
    """The section ``server.cors``."""

    origins: Annotated[tuple[str, ...], list_of(kinds.ORIGIN)] = ()
    """The origins whose web pages may call the gateway, such as `https://chat.example.org`; `*`: any."""


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """The section ``server.tls``. Without files the listeners serve HTTP."""

    certificate: Annotated[Path, kinds.FILE] | None = None
    """A PEM file with the certificate and its chain, relative to this file; with it, the gateway serves HTTPS."""
    key: Annotated[Path, kinds.FILE] | None = None
    """A PEM file with the certificate's private key, not encrypted."""
    admin: Annotated[bool, kinds.SWITCH] = False
    """Serve HTTPS on the admin listener too, with the same certificate."""


ENDPOINTS = (
    "chat",
    "completions",
    "embeddings",
    "responses",
    "input_tokens",
    "loglikelihood",
    "render",
    "tokenize",
    "detokenize",
)
"""The names of the endpoints (``gateway/calls/endpoints/table.py``)."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The ``server`` section."""

    host: Annotated[str, kinds.BIND] = "127.0.0.1"
    """The address to listen on, or `unix:` and the path of a Unix socket; anything but this and loopback needs client
    keys and `allowed_hosts`."""
    port: Annotated[int, integer(0, 65535)] = 8000
    """The port to listen on; 0 selects any free port."""
    workers: Annotated[int, kinds.WORKERS] = 1
    """The number of processes that serve the port; `auto`: one for each available core."""
    drain: Annotated[float, duration()] = 25.0
    """How long running calls may continue after SIGTERM."""
    drain_notice: Annotated[float, duration()] = 0.0
    """How long after SIGTERM the gateway still accepts calls while its readiness fails, before it drains."""
    worker_timeout: Annotated[float, duration(positive=True)] = 30.0
    """How long a worker process may be unresponsive before it is killed and replaced."""
    max_body: Annotated[int, kinds.SIZE] = 4 * 1024 * 1024
    """The largest request body that is accepted; a larger body is refused with 413."""
    max_inlined_media: Annotated[int, kinds.SIZE] = 64 * 1024 * 1024
    """The largest size of the media files that all running calls of a worker send inline (`media.file: inline`);
    further calls are refused with 503 `overloaded`."""
    max_in_flight: Annotated[int, integer(1)] = 1024
    """The maximum number of concurrent calls in all workers; further calls are refused with 503 `overloaded`."""
    max_connections: Annotated[int, integer(1)] = 8192
    """The maximum number of open connections in all workers; further ones get 503 `overloaded` and are closed."""
    max_connections_per_client: Annotated[int, integer(1)] | None = None
    """The maximum open connections of one IPv4 address or IPv6 /64 network in each worker; a proxy is one client."""
    allowed_hosts: Annotated[tuple[str, ...], list_of(kinds.HOST_NAME)] = ()
    """The accepted names in `Host` headers, besides localhost, 127.0.0.1 and [::1] on loopback; `*`: any."""
    admin: Annotated[str, kinds.LISTENER] | None = None
    """A second listener for metrics, status and health; without it the main listener serves them, `/metrics` and
    `/status` on loopback only."""
    insecure_no_keys: Annotated[bool, kinds.SWITCH] = False
    """Serve models without client keys beyond loopback; any client that can connect may use them."""
    cors: Section[CorsSpec] = CorsSpec()
    log_format: Annotated[Literal["text", "json"], WORDS] = "text"
    """The form of the log on standard error; `json`: one object for each line."""
    tls: Section[TlsSpec] = TlsSpec()
    endpoints: Annotated[tuple[str, ...], list_of(choice(*ENDPOINTS))] = ()
    """The endpoints that clients may call, an empty list for all; the pages of the viewer do not depend on it."""
    viewer: Annotated[Literal["on", "off"], WORDS] = "on"
    """Show the pages below `/viewer`: prompts, recordings and runs; `off` removes them."""
    viewer_secret: Annotated[SecretStr, kinds.SECRET] | None = None
    """Signs the sessions of the viewer, as `env:NAME` or `file:PATH`; needed if several gateways share one address,
    else each start makes its own."""

    @property
    def scheme(self) -> str:
        """The scheme of the main listener's URLs: ``http`` or ``https``."""
        return "http" if self.tls.certificate is None else "https"


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """The section ``network``: the proxy of ``completions`` and ``chat`` targets that name none."""

    proxy: Annotated[str, kinds.TEXT_OR_NONE] = ""
    """The HTTP proxy through which targets without `proxy` are reached, as `http://host:port`."""
    proxy_auth: Annotated[SecretStr, kinds.SECRET] | None = None
    """`user:password` for this proxy, as `env:NAME` or `file:PATH`."""
    no_proxy: Annotated[tuple[str, ...], list_of(kinds.HOST_NAME)] = ()
    """Hosts that are reached without this proxy; `example.org` is also each name that ends with `.example.org`."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One target of a model: its address, file or provider, and its kind."""

    label: Internal[str]
    """The label for metrics and ``x-gateway-target``: model and position, such as ``my-sft-7b/0``."""
    speaks: Annotated[str, choice(*BACKEND_KINDS)]
    """The kind of backend: `completions` (one string), `chat` (messages), `litellm` (messages, to a provider),
    `embedded` (a model folder, computed in this process), `scripted` (a script that is played),
    `replay` (a recording that answers)."""
    url: Annotated[str, kinds.URL_OR_NONE] = ""
    """The base address up to and including `/v1`."""
    model: Annotated[str, kinds.TEXT_OR_NONE] = ""
    """The model's name at the target: `provider/model` for `litellm`; the default for others is the name here."""
    engine: Annotated[Engine, WORDS] = "openai"
    """The engine behind the address, `openai` for any other; it determines which fields beyond OpenAI's are
    supported."""
    key: Annotated[SecretStr, kinds.SECRET] | None = None
    """The target's API key, as `env:NAME` or `file:PATH`."""
    proxy: Annotated[str, kinds.TEXT_OR_NONE] = ""
    """The HTTP proxy through which the address is reached, as `http://host:port`; the default is that of `network`."""
    proxy_auth: Annotated[SecretStr, kinds.SECRET] | None = None
    """`user:password` for `proxy`, as `env:NAME` or `file:PATH`."""
    ca: Annotated[Path, kinds.FILE] | None = None
    """A PEM file with certificates of private authorities, relative to this file; they are trusted in addition to the
    system's."""
    authorities: Internal[str] = ""
    """The content of ``ca``."""
    weight: Annotated[int, integer(1, 1000)] = 1
    """How often this target is chosen relative to the model's other targets, with `delivery.balance: weighted`."""
    adds_bos: Annotated[bool, kinds.SWITCH] | None = None
    """Whether the engine puts a BOS before a string prompt; the default depends on `engine`."""
    prompt: Annotated[Literal["text", "ids"], WORDS] = "text"
    """How a rendered prompt is sent: as `text`, or as `ids`, the token ids that the model's `tokenizer` makes of it."""
    path: Annotated[Path, kinds.FILE] | None = None
    """The model's folder, for `embedded`; relative to the file that names it."""
    script: Annotated[Path, kinds.FILE] | None = None
    """The script to play, for `scripted`; relative to the file that names it."""
    file: Annotated[Path, kinds.FILE] | None = None
    """The file of recordings that answers, for `replay`; relative to the file that names it."""
    pace: Annotated[Literal["none", "recorded"], WORDS] = "none"
    """How fast a `replay` target answers: `none` (at once), or `recorded` (each event after the recorded time)."""
    options: Annotated[Mapping[str, Any], kinds.MAPPING] = field(default=EMPTY_MAPPING)
    """Further options of an `embedded` or `litellm` target."""
    replayed: Internal[str] = ""
    """The kind of the target whose place a `replay` target takes in `gateway run --replay`. Empty: no such target."""
    line: Internal[int] = field(default=0, compare=False)
    """The first line of this target in the configuration file, from 1. 0 if the target does not come from a file."""

    @property
    def local_path(self) -> Path | None:
        """The model's folder of an ``embedded`` target, the script of a ``scripted`` one, or a recording."""
        return self.path or self.script or self.file


def target_at(url: str, key: str | None) -> TargetSpec:
    """Return a target that no configuration has. ``key``: the API key itself."""
    return TargetSpec(label="engine", speaks="completions", url=url, key=None if key is None else SecretStr(key))


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One entry of ``models`` as it is written, with the names of its template and policy."""

    template: Annotated[str, kinds.TEXT]
    """The name of a file in `meta_templates/`, or `chat`, which sends messages unchanged."""
    policy: Annotated[str, kinds.TEXT] = "default"
    """The name of a file in `policies/`, without `.yaml`."""
    description: Annotated[str, kinds.PROSE] = ""
    """A sentence about the model for people, shown by `GET /v1/models`."""
    tokenizer: Annotated[Path, kinds.FILE] | None = None
    """A local `tokenizer.json`, or a folder that contains this file."""
    max_model_len: Annotated[int, integer(1)] | None = None
    """The model's context length in tokens, prompt and answer together."""
    fallback: Annotated[tuple[str, ...], list_of(kinds.TEXT)] = ()
    """Models that answer, in this order, if all targets of this model fail; the policy must allow it."""
    omit: Annotated[tuple[str, ...], list_of(kinds.TEXT)] = ()
    """Parameters that the provider refuses; they are left out of every call, with the notice `omitted_parameter`."""
    targets: Entries[TargetSpec] = ()


@dataclass(frozen=True, slots=True)
class ParamsPolicy:
    """Rules for the parameters of a call."""

    force: Annotated[Mapping[str, Any], kinds.MAPPING] = field(default=EMPTY_MAPPING)
    """Parameters that are always sent, and replace those of the client."""
    default: Annotated[Mapping[str, Any], kinds.MAPPING] = field(default=EMPTY_MAPPING)
    """Parameters that are sent if the client does not give them."""
    clamp: Annotated[Mapping[str, float], kinds.BOUNDS] = field(default=EMPTY_MAPPING)
    """Upper bounds of parameters; a larger value is lowered to the bound, with a notice."""
    forbid: Annotated[tuple[str, ...], list_of(kinds.TEXT)] = ()
    """Parameters that are refused with 400 `forbidden_parameter`."""
    allow: Annotated[tuple[str, ...], list_of(kinds.TEXT)] = ()
    """Fields beyond OpenAI's that are sent regardless of `unknown`; fields that steer an engine are refused unless they
    are listed here."""
    unknown: Annotated[Literal["forward", "reject", "drop"], WORDS] = "forward"
    """What happens to a parameter that the gateway does not know; a dropped one is named in a notice."""
    explicit: Annotated[bool, kinds.SWITCH] = False
    """Send OpenAI's sampling defaults explicitly, because some engines have other defaults."""
    max_tokens: Annotated[int, integer(1)] = 2048
    """The token limit of a call to a model with a template, if the client sets no limit."""


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """Rules for media in messages."""

    https: Annotated[Literal["allow", "refuse"], WORDS] = "allow"
    """Whether messages may contain `https` addresses of media; the target fetches them, the gateway does not."""
    data: Annotated[Literal["allow", "refuse"], WORDS] = "allow"
    """Whether messages may contain media as `data:` URIs or in base64."""
    file: Annotated[Literal["refuse", "pass", "inline"], WORDS] = "refuse"
    """Whether messages may name media files in `media.folders`: `pass`, the target reads the file; `inline`, the
    gateway reads it and sends a `data:` URI; a client key needs `allow_media_files`."""
    folders: Annotated[tuple[Path, ...], kinds.FILES] = ()
    """The folders whose files may be named, relative to the folder of `gateway.yaml`; links out of them are refused."""
    max_size: Annotated[int, kinds.SIZE] = 16 * 1024 * 1024
    """The largest size of all files of a request together."""


@dataclass(frozen=True, slots=True)
class MarkersPolicy:
    """Rules for markers of the model's template in the texts of a request (``docs/spec/reliability.md`` 3.4)."""

    token_like: Annotated[MarkerAction, WORDS] = "escape"
    """The action for markers of the template such as `</s>`, and for special tokens, in the texts of a request."""
    text_like: Annotated[MarkerAction, WORDS] = "escape"
    """The action for markers of the template such as `USER:`, at the beginning of a line in a text of a request."""
    normalize: Annotated[Literal["none", "nfkc"], WORDS] = "none"
    """`nfkc`: also find markers with invisible characters or other forms of letters; changes become refusals."""


@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """Rules for the time of a call and of its parts."""

    connect: Annotated[float, duration(positive=True)] = 2.0
    """How long the gateway waits for a connection to the target."""
    first_token: Annotated[float, duration(positive=True)] = 60.0
    """How long the first content of a stream may take; without a stream only `total` applies."""
    idle: Annotated[float, duration(positive=True)] = 30.0
    """The longest pause between two pieces of content, and the longest time in which a client reads nothing."""
    total: Annotated[float, duration(positive=True)] = 600.0
    """How long a call may take, including retries and fallback models."""


@dataclass(frozen=True, slots=True)
class AttemptsPolicy:
    """Rules for the attempts of a call, and for the retries of a model."""

    attempts: Annotated[int, integer(1, 10)] = 3
    """The maximum number of attempts of a call, over all targets and fallback models; nothing is retried after the
    first content."""
    budget: Annotated[float, kinds.PERCENT] = 0.2
    """The maximum retries of a model, as a share of its calls in the last 10 s; 3 per second are always allowed."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Rules for the circuit breaker of a target (``docs/spec/reliability.md`` 4.4)."""

    failures: Annotated[int, integer(1, 1000)] = 5
    """The number of failures in a row after which calls avoid a target."""
    successes: Annotated[int, integer(1, 1000)] = 2
    """The number of successful probes in a row after which calls use the target again."""
    open: Annotated[float, duration(positive=True)] = 30.0
    """How long a failing target is avoided before one call at a time probes it."""
    window: Annotated[float, duration(positive=True)] = 60.0
    """The time within which failures are counted; older failures are ignored."""


Balance = Literal["round_robin", "least_busy", "weighted", "sticky"]


@dataclass(frozen=True, slots=True)
class HealthCheckPolicy:
    """Rules for the health checks of a target, which succeed if it answers with a status below 400."""

    path: Annotated[str, kinds.URL_PATH_OR_NONE] = ""
    """A path that each target answers while it is healthy, such as `/health`; without it, nothing is checked."""
    interval: Annotated[float, duration(positive=True)] = 10.0
    """The time between two health checks of a target."""
    timeout: Annotated[float, duration(positive=True)] = 2.0
    """How long a health check may take."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Timeouts, retries, and the choice of a target (``docs/spec/reliability.md`` 4)."""

    timeout: Section[TimeoutPolicy] = TimeoutPolicy()
    retry: Section[AttemptsPolicy] = AttemptsPolicy()
    balance: Annotated[Balance, WORDS] = "round_robin"
    """The target that a call tries first: `round_robin`, `least_busy`, `weighted` (by the targets' `weight`) or
    `sticky` (the same session, cache key, user or prompt prefix at the same target)."""
    breaker: Section[BreakerPolicy] = BreakerPolicy()
    health_check: Section[HealthCheckPolicy] = HealthCheckPolicy()
    fallback: Annotated[bool, kinds.SWITCH] = False
    """Whether a model with this policy may name `fallback` models; an answer of another model has a notice."""
    providers: Annotated[Literal["any", "pinned"], WORDS] = "any"
    """`pinned`: refuse targets of an aggregator, such as OpenRouter, that are not pinned to one provider."""
    stream_upstream: Annotated[bool, kinds.SWITCH] = False
    """Request a stream from the target even if the client does not; for engines that generate beyond the stop."""


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """Limits for the sum of all calls to one model. None if there is no limit."""

    requests_per_minute: Annotated[int, integer(1)] | None = None
    """The maximum calls per minute to a model with this policy; further ones get 429 `rate_limit_exceeded`."""
    tokens_per_minute: Annotated[int, integer(1)] | None = None
    """The maximum tokens per minute of prompts and answers; estimated when a call begins, corrected when it ends."""
    concurrency: Annotated[int, integer(1)] | None = None
    """The maximum concurrent calls to a model, divided among the workers; further calls wait, and keys take turns."""
    queue_wait: Annotated[float, duration()] = 2.0
    """How long a call above `concurrency` may wait; after this time it is refused with 503 `overloaded`."""
    queue_size: Annotated[int, integer(0)] = 256
    """The maximum number of calls that wait for a model; further calls are refused with 503 `overloaded`."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Rules for the cache, which sends a stored answer again for exactly the same request."""

    mode: Annotated[Literal["off", "on", "read_only", "write_only"], WORDS] = "off"
    """Whether complete answers are kept and sent again for exactly the same request."""
    ttl: Annotated[float, duration(positive=True)] = 24 * 3600.0
    """How long an answer in the cache may be used, and its reasoning be put back."""
    coalesce: Annotated[bool, kinds.SWITCH] = False
    """Whether equal requests at the same time make one call, if `temperature` is 0 or a `seed` is given; needs
    `mode: on`."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """The rules of one policy file."""

    name: Internal[str]
    description: Annotated[str, kinds.PROSE] = ""
    """A sentence about the policy for people."""
    params: Section[ParamsPolicy] = ParamsPolicy()
    media: Section[MediaPolicy] = MediaPolicy()
    limits: Section[LimitsPolicy] = LimitsPolicy()
    markers: Section[MarkersPolicy] = MarkersPolicy()
    cache: Section[CachePolicy] = CachePolicy()
    reasoning: Annotated[Literal["off", "replay"], WORDS] = "off"
    """`replay`: put back the reasoning of earlier turns with tool calls that a client has left out; the store is that
    of the cache."""
    record: Annotated[Literal["off", "metadata", "full"], WORDS] = "off"
    """Whether calls are recorded: `metadata` has no text of prompts and answers, `full` has all."""
    delivery: Section[DeliveryPolicy] = DeliveryPolicy()
    digest: Internal[str] = field(default="", compare=False)
    """The first 12 hex digits of the SHA-256 of the policy's file."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that clients can call."""

    name: str
    template: TemplateSpec
    policy: PolicySpec
    targets: tuple[TargetSpec, ...]
    tokenizer: Path | None = None
    max_model_len: int | None = None
    fallback: tuple[str, ...] = ()
    """The names of the models that are tried, in order, if all targets of this model fail."""
    omit: tuple[str, ...] = ()
    """The parameters that are removed from every call, because the targets refuse them."""
    description: str = ""
    source: str = field(default="", compare=False)
    """The name of the file that defines the model, as shown in problems."""
    line: int = field(default=0, compare=False)
    """The first line of the model in ``source``."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits for the sum of all calls with one client key. None: no limits."""

    requests_per_minute: Annotated[int, integer(1)] | None = None
    """The maximum calls per minute with this key; further calls are refused with 429 `rate_limit_exceeded`."""
    tokens_per_minute: Annotated[int, integer(1)] | None = None
    """The maximum tokens per minute with this key, counting prompts and answers."""
    concurrency: Annotated[int, integer(1)] | None = None
    """The maximum concurrent calls with this key; further calls are refused with 429 `rate_limit_exceeded`."""


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A client key, stored as its digest."""

    name: Internal[str]
    sha256: Annotated[str, kinds.DIGEST]
    """The SHA-256 of the key in hex; `gateway keys new NAME` makes a key and its entry."""
    models: Annotated[tuple[str, ...], list_of(kinds.TEXT)] = ("*",)
    """The models that the key may use; `*` and `?` are wildcards."""
    record: Annotated[bool, kinds.SWITCH] = True
    """`false`: calls with this key are never recorded, under any policy."""
    allow_markers: Annotated[bool, kinds.SWITCH] = False
    """Send markers of templates in requests with this key unchanged; for evaluations and trusted tools."""
    allow_media_files: Annotated[bool, kinds.SWITCH] = False
    """Accept the names of media files in requests with this key, where the policy's `media.file` allows files."""
    expires: Annotated[float, kinds.MOMENT] | None = None
    """The last day on which the key is valid (in UTC), or the time at which it expires; by default, never."""
    limits: Section[KeyLimits] = KeyLimits()


@dataclass(frozen=True, slots=True)
class KeysSettings:
    """The section ``keys``."""

    file: Annotated[str, kinds.TEXT] | None = None
    """The file with the client keys, relative to this file; optional on loopback."""
    max_in_metrics: Annotated[int, integer(0)] = 50
    """Metrics name the client key of a call if there are at most this many keys; 0: never."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The Redis server with which several gateways share their rate limits and their cache."""

    url: Annotated[str, kinds.STORE_URL_OR_NONE] = ""
    """A Redis or Valkey server with which several gateways share their rate limits, and with `cache.shared` their
    cache; without it, each counts alone."""
    password: Annotated[SecretStr, kinds.SECRET] | None = None
    """The server's password, as `env:NAME` or `file:PATH`."""
    on_failure: Annotated[Literal["allow", "refuse"], WORDS] = "allow"
    """While the server does not answer: `allow`, each process has a share; `refuse`, calls with a rate get 503."""
    timeout: Annotated[float, duration(positive=True)] = 0.5
    """How long a call waits for an answer of the server."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The storage of the cache."""

    path: Annotated[Path, kinds.FILE] | None = None
    """The SQLite file of the cache, relative to this file; without it, each worker keeps answers in its memory."""
    shared: Annotated[bool, kinds.SWITCH] = False
    """Keep answers on the server of `store.url`; all gateways with this server share the answers."""
    max_size: Annotated[int, kinds.SIZE] = 256 * 1024 * 1024
    """The maximum size of the cache, in memory for each worker; above it, the oldest answers are removed; a Redis
    server has its own limit."""


@dataclass(frozen=True, slots=True)
class RecordingsSpec:
    """The file for recordings of calls, and its limits."""

    path: Annotated[Path, kinds.FILE] | None = None
    """The SQLite file for the calls that a policy records, relative to this file."""
    retention: Annotated[float, duration(positive=True)] = 168 * 3600.0
    """How long a recording is kept."""
    max_size: Annotated[int, kinds.SIZE] = 1024 * 1024 * 1024
    """The maximum size of the file; above it, the oldest recordings are removed."""
    run: Annotated[Literal["on", "off"], WORDS] = "on"
    """Whether `gateway run` without `--base-url` records its calls in a file beside its output."""
    keep_all: Internal[bool] = False
    """True: no recording is dropped because too many wait to be written. The sender of the calls waits instead."""


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """The section ``tracing``: where the spans of calls are sent, by OTLP over HTTP."""

    otlp: Annotated[str, kinds.SPANS_URL_OR_NONE] = ""
    """The address that receives spans, such as `http://127.0.0.1:4318/v1/traces`; without it, no spans are made."""
    sample: Annotated[float, kinds.PERCENT] = 1.0
    """The share of the calls with spans; a call whose client sends `traceparent` has spans if its client's has."""
    service: Annotated[str, kinds.TEXT] = "meta-gateway"
    """The name of this service in traces."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The content of ``gateway.yaml``."""

    server: Section[ServerSpec] = ServerSpec()
    models: Section[Mapping[str, Section[ModelSettings]]] = field(default=EMPTY_MAPPING)
    network: Section[NetworkSpec] = NetworkSpec()
    keys: Section[KeysSettings] = KeysSettings()
    store: Section[StoreSpec] = StoreSpec()
    cache: Section[CacheSpec] = CacheSpec()
    recordings: Section[RecordingsSpec] = RecordingsSpec()
    tracing: Section[TracingSpec] = TracingSpec()
    redact: Annotated[tuple[str, ...], list_of(kinds.PATTERN)] = ()
    """Patterns whose matches are replaced in recordings and in the log: names such as `email`, or `/regex/`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration."""

    server: ServerSpec
    models: Mapping[str, ModelSpec]
    prompts: Mapping[str, PromptSpec] = field(default=EMPTY_MAPPING)
    """The dataset prompts of the folder ``prompts``, by name."""
    keys: tuple[KeySpec, ...] = ()
    key_labels: bool = False
    """Whether metrics have the names of the keys as a label."""
    store: StoreSpec = StoreSpec()
    cache: CacheSpec = CacheSpec()
    recordings: RecordingsSpec = RecordingsSpec()
    tracing: TracingSpec = TracingSpec()
    redact: tuple[str, ...] = ()
    """The patterns whose matches are replaced: names of built-in patterns, and regular expressions between slashes."""
    revision: str = ""
    """The first 12 hex digits of a digest over all files of the configuration."""
    notes: tuple[Problem, ...] = ()
    """Notes for the operator, such as model files that contradict each other. A note is not an error."""
