"""The configuration as frozen values.

``config/load.py`` creates a ``Snapshot``; a reload creates a new one. Durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import Problem
from gateway.template.dataset.spec import PromptSpec
from gateway.template.spec import TemplateSpec

Engine = Literal["openai", "vllm", "sglang", "llamacpp", "tgi"]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The ``server`` section."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """The number of serving processes."""
    drain: float = 25.0
    """The time in seconds for which running calls may continue after SIGTERM."""
    drain_notice: float = 0.0
    """The time in seconds between SIGTERM and the drain. During this time calls are accepted, and readiness fails."""
    worker_timeout: float = 30.0
    """The time in seconds within which a worker must answer the supervisor."""
    max_body: int = 4 * 1024 * 1024
    max_in_flight: int = 1024
    """The largest number of concurrent calls. Further calls are refused with 503 ``overloaded``."""
    max_connections: int = 8192
    """The largest number of open connections of the main listener."""
    max_connections_per_client: int | None = None
    """The largest number of open connections of one client address. None if there is no limit."""
    allowed_hosts: tuple[str, ...] = ()
    """The accepted Host headers. A loopback listener also accepts localhost, 127.0.0.1 and [::1]."""
    admin: str | None = None
    """``host:port`` of the listener for metrics and health. None if the main listener serves metrics and health."""
    cors_origins: tuple[str, ...] = ()
    """The origins whose web pages may call the gateway. The origin ``*`` allows any web page."""
    insecure_no_keys: bool = False
    """Whether a non-loopback listener is allowed without client keys."""
    tls_certificate: Path | None = None
    """The file of the certificate chain (PEM). None if the listeners serve HTTP."""
    tls_key: Path | None = None
    """The file of the certificate's private key (PEM). None if the listeners serve HTTP."""
    tls_admin: bool = False
    """Whether the admin listener serves HTTPS too."""

    @property
    def scheme(self) -> str:
        """The scheme of the main listener's URLs: ``http`` or ``https``."""
        return "http" if self.tls_certificate is None else "https"

    log_format: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One target of a model: its address, file or provider, and its kind."""

    label: str
    """The label for metrics and ``x-gateway-target``: model and position, such as ``my-sft-7b/0``."""
    speaks: str
    """The kind of target, a name from ``config/schema/backend_kinds.py``."""
    url: str = ""
    """The base address up to and including ``/v1``, without a final slash."""
    model: str = ""
    """The model's name at the target. The default is the configured name of the model."""
    engine: Engine = "openai"
    key: SecretStr | None = None
    weight: int = 1
    """How often this target is chosen, relative to the other targets of its model (``balance: weighted``)."""
    adds_bos: bool | None = None
    """Whether the engine puts a BOS before a string prompt. None if the engine's default applies."""
    path: Path | None = None
    """The model folder of an ``embedded`` target, or the script file of a ``scripted`` target."""
    options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    line: int = field(default=0, compare=False)
    """The first line of this target in the configuration file, from 1. 0 if the target does not come from a file."""


@dataclass(frozen=True, slots=True)
class ParamsPolicy:
    """Rules for the parameters of a call."""

    force: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    default: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    clamp: Mapping[str, float] = field(default=EMPTY_MAPPING)
    """Parameter → upper limit. A larger value in a request is lowered to the limit."""
    forbid: tuple[str, ...] = ()
    unknown: Literal["forward", "reject", "drop"] = "forward"
    explicit: bool = False
    """Whether OpenAI's default sampling parameters are sent explicitly."""
    max_tokens: int = 2048
    """The ``max_tokens`` of a call to a model with a template, if the client sets no limit."""
    allow: tuple[str, ...] = ()
    """Fields outside OpenAI's API that are always sent to the target, including fields that control an engine."""


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """Rules for media in messages."""

    https: Literal["allow", "refuse"] = "allow"
    """Whether media may be given as https URLs, which the target fetches."""
    data: Literal["allow", "refuse"] = "allow"
    """Whether media may be given as ``data:`` URIs or base64."""
    file: Literal["refuse", "pass", "inline"] = "refuse"
    """Whether media may be given as files. ``pass``: the target reads the file. ``inline``: the gateway reads the file
    and sends its content as a ``data:`` URI."""
    folders: tuple[Path, ...] = ()
    """The folders whose files may be named. A relative path in a message is looked up in each folder, in order."""
    max_size: int = 16 * 1024 * 1024
    """The largest size in bytes of all files of one request together."""


MarkerAction = Literal["escape", "reject", "strip", "allow", "report", "token_ids"]


@dataclass(frozen=True, slots=True)
class MarkersPolicy:
    """Rules for markers of the model's template in the texts of a request (``docs/spec/reliability.md`` 3.4)."""

    token_like: MarkerAction = "escape"
    """The action for markers such as ``<|im_end|>``, and for the special tokens of the tokenizer."""
    text_like: MarkerAction = "escape"
    """The action for markers such as ``USER:``."""
    normalize: Literal["none", "nfkc"] = "none"
    """``nfkc`` to search the normalized texts of a request too, for a tokenizer that normalizes its input."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Rules for the circuit breaker of a target (``docs/spec/reliability.md`` 4.4)."""

    failures: int = 5
    """The number of failures in a row that opens the breaker."""
    successes: int = 2
    """The number of successful probes in a row that closes the breaker."""
    open: float = 30.0
    """The time in seconds for which the breaker is open before the target is probed."""
    window: float = 60.0
    """The time in seconds within which failures are counted. Older failures are not counted."""


Balance = Literal["round_robin", "least_busy", "weighted", "sticky"]


@dataclass(frozen=True, slots=True)
class HealthCheckPolicy:
    """Rules for the health checks of a target."""

    path: str = ""
    """The path of the health check at the target's host, such as ``/health``. Empty if nothing is checked."""
    interval: float = 10.0
    """The time in seconds between two checks."""
    timeout: float = 2.0
    """The time in seconds within which the target must answer with a status below 400."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Timeouts, retries, and the choice of a target (``docs/spec/reliability.md`` 4)."""

    connect: float = 2.0
    first_token: float = 60.0
    idle: float = 30.0
    total: float = 600.0
    attempts: int = 3
    """The maximum number of attempts of one call, over all targets."""
    budget: float = 0.2
    """The allowed retries per call, from 0 to 1. See ``RetryBudget``."""
    balance: Balance = "round_robin"
    breaker: BreakerPolicy = BreakerPolicy()
    health_check: HealthCheckPolicy = HealthCheckPolicy()
    fallback: bool = False
    """Whether a model with this policy may have ``fallback`` models."""
    providers: Literal["any", "pinned"] = "any"
    """``pinned`` if each target at an aggregator must be pinned to one provider."""
    stream_upstream: bool = False
    """Whether the gateway requests a stream from the target even if the client does not request a stream."""


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """Limits for the sum of all calls to one model. None if there is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    queue_wait: float = 2.0
    """The time in seconds that a call above ``concurrency`` may wait. 0 to refuse such a call at once."""
    queue_size: int = 256
    """The maximum number of waiting calls."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits for the sum of all calls with one client key. None if there is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The Redis server with which several gateways share their rate limits and their cache."""

    url: str = ""
    """The address of the Redis server. Empty if this gateway shares nothing with other gateways."""
    password: SecretStr | None = None
    on_failure: Literal["allow", "refuse"] = "allow"
    """Whether calls with a rate limit are allowed or refused while the Redis server does not answer."""
    timeout: float = 0.5
    """The time in seconds within which the Redis server must answer."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Rules for the cache, which sends a stored answer again for exactly the same request."""

    mode: Literal["off", "on", "read_only", "write_only"] = "off"
    ttl: float = 24 * 3600.0
    """The time in seconds for which a stored answer may be used."""
    coalesce: bool = False
    """Whether equal deterministic requests at the same time make one call."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The storage of the cache."""

    path: Path | None = None
    """The SQLite file of the cache. None if answers are stored in memory or on the Redis server."""
    shared: bool = False
    """Whether answers are stored on the Redis server of ``StoreSpec``."""
    max_size: int = 256 * 1024 * 1024
    """The maximum size in bytes, for memory or a file. Above this size, the oldest answers are removed."""


@dataclass(frozen=True, slots=True)
class RecordingsSpec:
    """The file for recordings of calls, and its limits."""

    path: Path | None = None
    """The SQLite file for recordings. None if no call is recorded."""
    retention: float = 168 * 3600.0
    """The time in seconds after which a recording is removed."""
    max_size: int = 1024 * 1024 * 1024
    """The maximum size of the file in bytes. Above this size, the oldest recordings are removed."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """The rules of one policy file."""

    name: str
    description: str = ""
    params: ParamsPolicy = ParamsPolicy()
    delivery: DeliveryPolicy = DeliveryPolicy()
    media: MediaPolicy = MediaPolicy()
    limits: LimitsPolicy = LimitsPolicy()
    markers: MarkersPolicy = MarkersPolicy()
    cache: CachePolicy = CachePolicy()
    record: Literal["off", "metadata", "full"] = "off"
    """Whether calls are recorded. ``metadata`` contains no texts of a call, ``full`` contains all texts."""


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
class KeySpec:
    """A client key, stored as its digest."""

    name: str
    sha256: str
    """The SHA-256 of the key, as 64 lower-case hex digits."""
    models: tuple[str, ...] = ("*",)
    """Shell patterns that match the names of the models that the key may use."""
    expires: float | None = None
    """The time at which the key expires, in seconds since the epoch. None if the key does not expire."""
    limits: KeyLimits = KeyLimits()
    record: bool = True
    """Whether calls with this key may be recorded. False overrides the policy of the model."""
    allow_markers: bool = False
    """Whether requests with this key may contain markers of templates. True has the effect of the action ``allow``."""
    allow_media_files: bool = False
    """Whether requests with this key may name media files, where the policy allows files (``media.file``)."""


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
    redact: tuple[str, ...] = ()
    """The patterns whose matches are replaced: names of built-in patterns, and regular expressions between slashes."""
    revision: str = ""
    """The first 12 hex digits of a digest over all files of the configuration."""
    notes: tuple[Problem, ...] = ()
    """Notes for the operator, such as model files that contradict each other. A note is not an error."""
