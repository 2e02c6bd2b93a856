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
    """Number of serving processes."""
    drain: float = 25.0
    """The time in seconds that running calls have to end after SIGTERM."""
    drain_notice: float = 0.0
    """The time in seconds between SIGTERM and the drain. Calls are accepted, and readiness fails."""
    worker_timeout: float = 30.0
    """The time in seconds in which a worker has to answer the supervisor."""
    max_body: int = 4 * 1024 * 1024
    max_in_flight: int = 1024
    """The largest number of concurrent calls. Further calls get 503 ``overloaded``."""
    max_connections: int = 8192
    """The largest number of open connections of the main listener."""
    max_connections_per_client: int | None = None
    """The largest number of open connections of one address; None: no limit."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted Host headers; empty: a loopback listener accepts localhost, 127.0.0.1 and [::1]."""
    admin: str | None = None
    """``host:port`` for metrics and health; None: the main listener serves both, metrics only on a loopback address."""
    cors_origins: tuple[str, ...] = ()
    """The origins whose web pages may call the gateway; ``*``: any."""
    insecure_no_keys: bool = False
    """Allow a non-loopback listener without client keys."""
    tls_certificate: Path | None = None
    """The certificate chain (PEM); None: the listeners serve HTTP."""
    tls_key: Path | None = None
    """The private key of the certificate (PEM); None if and only if ``tls_certificate`` is None."""
    tls_admin: bool = False
    """Whether the admin listener serves HTTPS too."""

    @property
    def scheme(self) -> str:
        """The scheme of the main listener's URLs: ``http`` or ``https``."""
        return "http" if self.tls_certificate is None else "https"

    log_format: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One replica of a model: where it runs and which API it has."""

    label: str
    """``model/position``, such as ``my-sft-7b/0``, used as metric label and in the header ``x-gateway-target``."""
    speaks: str
    """The kind of target, a name from ``config/schema/backend_kinds.py``."""
    url: str = ""
    """Base address up to and including ``/v1``, without a final slash."""
    model: str = ""
    """The model's name at the target; defaults to the configured name."""
    engine: Engine = "openai"
    key: SecretStr | None = None
    weight: int = 1
    """How often this target is chosen, relative to the other targets of its model (``balance: weighted``)."""
    adds_bos: bool | None = None
    """Whether the engine puts a BOS before a string prompt; None: the engine's default."""
    path: Path | None = None
    """Model folder (``embedded``) or script file (``scripted``)."""
    options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    line: int = field(default=0, compare=False)
    """The first line of this target in the configuration file, 1-based; 0: the target is not from a file."""


@dataclass(frozen=True, slots=True)
class ParamsPolicy:
    """Rules for the parameters of a call."""

    force: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    default: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    clamp: Mapping[str, float] = field(default=EMPTY_MAPPING)
    """Upper limits; larger values are lowered."""
    forbid: tuple[str, ...] = ()
    unknown: Literal["forward", "reject", "drop"] = "forward"
    explicit: bool = False
    """Whether OpenAI's default sampling parameters are sent explicitly."""
    max_tokens: int = 2048
    """The ``max_tokens`` of a call to a model with a template, if the client sets no limit."""
    allow: tuple[str, ...] = ()
    """Fields beyond OpenAI's API that are always sent, including fields that control an engine."""


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """Rules for media in messages."""

    https: Literal["allow", "refuse"] = "allow"
    """Whether media may be given as https URLs, which the target fetches."""
    data: Literal["allow", "refuse"] = "allow"
    """Whether media may be given as ``data:`` URIs or base64."""


MarkerAction = Literal["escape", "reject", "strip", "allow", "report", "token_ids"]


@dataclass(frozen=True, slots=True)
class MarkersPolicy:
    """What happens to markers of the model's template in the texts of a request (``docs/spec/reliability.md`` 3.4)."""

    token_like: MarkerAction = "escape"
    """Markers such as ``<|im_end|>``, and the special tokens of the tokenizer."""
    text_like: MarkerAction = "report"
    """Markers such as ``USER:``."""
    normalize: Literal["none", "nfkc"] = "none"
    """``nfkc``: texts are also searched as a tokenizer that normalizes may read them."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a target is avoided because it fails (``docs/spec/reliability.md`` 4.4)."""

    failures: int = 5
    """Failures in a row that open the breaker."""
    successes: int = 2
    """Successful probes in a row that close it."""
    open: float = 30.0
    """Seconds before an open breaker is probed."""
    window: float = 60.0
    """Seconds; older failures are not counted."""


Balance = Literal["round_robin", "least_busy", "weighted", "sticky"]


@dataclass(frozen=True, slots=True)
class HealthCheckPolicy:
    """Requests to a target that only ask whether it is healthy."""

    path: str = ""
    """A path from the root of the target's address, such as ``/health``; empty: no checks."""
    interval: float = 10.0
    """Seconds between two checks."""
    timeout: float = 2.0
    """Seconds in which the target must answer with a status below 400."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Timeouts, retries, and the choice of a target (``docs/spec/reliability.md`` 4)."""

    connect: float = 2.0
    first_token: float = 60.0
    idle: float = 30.0
    total: float = 600.0
    attempts: int = 3
    """Maximum number of attempts over all targets."""
    budget: float = 0.2
    """Retries per call, between 0 and 1; see ``RetryBudget``."""
    balance: Balance = "round_robin"
    breaker: BreakerPolicy = BreakerPolicy()
    health_check: HealthCheckPolicy = HealthCheckPolicy()
    fallback: bool = False
    """Whether a model with this policy may have ``fallback`` models."""
    providers: Literal["any", "pinned"] = "any"
    """Whether targets of aggregators must be pinned to one provider."""
    stream_upstream: bool = False
    """Whether the target is asked for a stream even if the client's call is not streaming."""


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """Limits of all calls to one model together; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    queue_wait: float = 2.0
    """Seconds that a call beyond ``concurrency`` may wait; 0: it is refused at once."""
    queue_size: int = 256
    """The most calls that wait."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of all calls with one key together; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The server that holds the rates, and the kept answers, of several gateways."""

    url: str = ""
    """Empty: the rates are held in memory, for all workers of this gateway together."""
    password: SecretStr | None = None
    on_failure: Literal["allow", "refuse"] = "allow"
    """Whether limited calls are admitted while the server does not answer."""
    timeout: float = 0.05
    """Seconds in which the server must answer."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Whether complete answers are kept and sent again for exactly the same request."""

    mode: Literal["off", "on", "read_only", "write_only"] = "off"
    ttl: float = 24 * 3600.0
    """Seconds after which an answer is not used any more."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The place where answers are kept."""

    path: Path | None = None
    """An SQLite file; None: the memory of each process, or the server of ``StoreSpec``."""
    shared: bool = False
    """Whether answers are kept on the server of ``StoreSpec``."""
    max_size: int = 256 * 1024 * 1024
    """Bytes; the oldest answers are removed. The server has a limit of its own."""


@dataclass(frozen=True, slots=True)
class RecordingsSpec:
    """The file of the recorded calls."""

    path: Path | None = None
    """An SQLite file; None: no call is recorded."""
    retention: float = 168 * 3600.0
    """Seconds after which a recording is removed."""
    max_size: int = 1024 * 1024 * 1024
    """Bytes; the oldest recordings are removed."""


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
    """Whether calls are recorded, without or with their texts."""


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
    """The models that are asked, in order, if all targets of this one fail."""
    omit: tuple[str, ...] = ()
    """Parameters removed from every call because the targets refuse them."""
    description: str = ""
    source: str = field(default="", compare=False)
    """The file that defines the model, as shown in problems."""
    line: int = field(default=0, compare=False)
    """The first line of the model in ``source``."""


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A client key, stored as its digest."""

    name: str
    sha256: str
    """SHA-256 of the key: 64 lower-case hex digits."""
    models: tuple[str, ...] = ("*",)
    """Shell patterns that match the names of the models that the key may use."""
    expires: float | None = None
    """The time when the key expires, in seconds since the epoch; None: never."""
    limits: KeyLimits = KeyLimits()
    record: bool = True
    """False: no call with this key is recorded, under any policy."""
    allow_markers: bool = False
    """Whether requests with this key may contain markers of templates, as with the action ``allow``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration."""

    server: ServerSpec
    models: Mapping[str, ModelSpec]
    prompts: Mapping[str, PromptSpec] = field(default=EMPTY_MAPPING)
    """The dataset prompts of the folder ``prompts``, by name."""
    keys: tuple[KeySpec, ...] = ()
    store: StoreSpec = StoreSpec()
    cache: CacheSpec = CacheSpec()
    recordings: RecordingsSpec = RecordingsSpec()
    redact: tuple[str, ...] = ()
    """Names of built-in patterns, and regular expressions between slashes (``wire/redaction.py``)."""
    revision: str = ""
    """The first 12 hex digits of a digest over all files of the configuration."""
    notes: tuple[Problem, ...] = ()
    """Notes for the operator that are not errors, such as model files that disagree."""
