"""The configuration as the rest of the gateway sees it: one frozen value.

Files become a ``Snapshot`` in ``config/load.py``; a reload makes a new one.
Durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gateway.config.schema.secrets import Secret
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import Problem
from gateway.template.spec.template import TemplateSpec

Speaks = Literal["completions", "chat", "litellm", "embedded", "scripted"]
Engine = Literal["openai", "vllm", "sglang", "llamacpp", "tgi"]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How the gateway listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """How many processes serve."""
    drain: float = 25.0
    """How long running calls may go on after SIGTERM."""
    max_body: int = 4 * 1024 * 1024
    max_in_flight: int = 1024
    """Calls beyond this are answered 503 ``overloaded``."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names answered for; empty: localhost, 127.0.0.1 and [::1] on a loopback listener."""
    admin: str | None = None
    """``host:port`` of a second listener for metrics and health; None: the main one has both, metrics on loopback."""
    http_server: Literal["h1", "uvicorn"] = "h1"
    """Which server speaks to the clients: the gateway's own, or uvicorn."""
    insecure_no_keys: bool = False
    """Serve on an address other than loopback without client keys."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One replica of a model: a door and how to knock."""

    label: str
    """``model/position``, such as ``my-sft-7b/0``: the metric label and ``x-gateway-target``."""
    speaks: Speaks
    url: str = ""
    """Base address up to and including ``/v1``, without a final slash."""
    model: str = ""
    """The name the target knows the model by; defaults to the configured name."""
    engine: Engine = "openai"
    key: Secret | None = None
    adds_bos: bool | None = None
    """Does the engine put a BOS before a string prompt? None: as its dialect says."""
    path: Path | None = None
    """Model folder (``embedded``) or script file (``scripted``)."""
    options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    line: int = field(default=0, compare=False)
    """Where it begins in the model's ``source``, 1-based; 0: not from a file."""


@dataclass(frozen=True, slots=True)
class ParamsPolicy:
    """What may be asked, and what is asked in any case (design 3)."""

    force: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    default: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    clamp: Mapping[str, float] = field(default=EMPTY_MAPPING)
    """Upper bounds."""
    forbid: tuple[str, ...] = ()
    unknown: Literal["forward", "reject", "drop"] = "forward"
    explicit: bool = False
    """Tell engines OpenAI's sampling defaults in so many words."""
    max_tokens: int = 2048
    """Sent with a templated call that sets no limit of its own (design 5.1)."""
    allow: tuple[str, ...] = ()
    """Fields beyond OpenAI's that are sent whatever ``unknown`` says, those that steer an engine included."""


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """What messages may carry to a target that takes messages."""

    https: Literal["allow", "refuse"] = "allow"
    """Addresses, which the target fetches."""
    data: Literal["allow", "refuse"] = "allow"
    """``data:`` URIs and base64."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Clocks and attempts (``specs/reliability.md`` 4)."""

    connect: float = 2.0
    first_token: float = 60.0
    idle: float = 30.0
    total: float = 600.0
    attempts: int = 3
    """At most this many, over all targets, before the first event."""
    stream_upstream: bool = False
    """Stream from the upstream even for non-streaming calls."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A file in ``policies/``."""

    name: str
    description: str = ""
    params: ParamsPolicy = ParamsPolicy()
    delivery: DeliveryPolicy = DeliveryPolicy()
    media: MediaPolicy = MediaPolicy()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What clients write in ``model``, and all that follows from it."""

    name: str
    template: TemplateSpec
    policy: PolicySpec
    targets: tuple[TargetSpec, ...]
    tokenizer: Path | None = None
    max_model_len: int | None = None
    omit: tuple[str, ...] = ()
    """Parameters that are left out of every call, because the targets refuse them."""
    description: str = ""
    source: str = field(default="", compare=False)
    """The file that names it, as problems show it."""
    line: int = field(default=0, compare=False)
    """Where it begins in that file."""


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One client key, known by its digest only."""

    name: str
    sha256: str
    """64 lower-case hex digits of the key's SHA-256."""
    models: tuple[str, ...] = ("*",)
    """Shell patterns over model names."""
    expires: float | None = None
    """Seconds since the epoch; None: never."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the files say, at one moment."""

    server: ServerSpec
    models: Mapping[str, ModelSpec]
    keys: tuple[KeySpec, ...] = ()
    revision: str = ""
    """Twelve hex digits over all files read; changes when any of them does."""
    files: tuple[Path, ...] = ()
    """Every file that was read, for the watcher."""
    notes: tuple[Problem, ...] = ()
    """What is no mistake, and a person should know of, such as files of a model that disagree."""
