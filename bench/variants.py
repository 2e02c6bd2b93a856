"""Which configurations of the gateway are measured? Each is a row; ``write`` turns one into the files it stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "sft-demo"
KEY = "gk_bench_0"


@dataclass(frozen=True, slots=True)
class Variant:
    """What differs from one model, one template, the default policy, no keys."""

    says: str
    template: str = TEMPLATE
    """``chat``: messages as they are."""
    speaks: str = "completions"
    models: int = 1
    templates: int = 1
    keys: int = 0
    targets: int = 1
    policy: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings on top of the default policy."""
    path: str = "/v1/chat/completions"
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields added to each request."""


BASE = Variant("templated chat, completions upstream, default policy, every metric on")

LAYERS: dict[str, Variant] = {
    # what one part of the journey costs: the difference to ``gateway``
    "health": Variant("the HTTP server alone: GET /health, no call at all", path="/health"),
    "raw": Variant("a raw completion: the whole journey without a template", path="/v1/completions"),
    "messages": Variant("messages passed on to a chat server", template="chat", speaks="chat"),
    "keys": Variant("client keys on", keys=1),
    "two-targets": Variant("two targets of one model", targets=2),
    "one-attempt": Variant("no second attempt", policy={"delivery": {"retry": {"attempts": 1}}}),
    "params": Variant(
        "parameters defaulted and clamped",
        policy={"params": {"default": {"seed": 1}, "clamp": {"max_tokens": 4096}, "forbid": ["user"]}},
    ),
    "explicit": Variant("the engine told every default", policy={"params": {"explicit": True}}),
    "explain": Variant("each answer explained", extra={"gateway": {"explain": True}}),
    "n=2": Variant("two choices by two calls (one counts as one request)", extra={"n": 2}),
}

SIZES = (1, 100, 1000)
GROWTH: dict[str, Variant] = {
    **{f"models={n}": Variant(f"{n} models", models=n) for n in SIZES},
    **{f"templates={n}": Variant(f"{n} templates, each used by a model", models=n, templates=n) for n in SIZES[1:]},
    **{f"keys={n}": Variant(f"{n} client keys", keys=n) for n in SIZES},
}

VARIANTS: dict[str, Variant] = {
    "gateway": BASE,
    "gateway-chat": LAYERS["messages"],
    "gateway-litellm": Variant("messages through the LiteLLM SDK", template="chat", speaks="litellm"),
    **{f"gateway+{name}": variant for name, variant in {**LAYERS, **GROWTH}.items()},
}


def write(variant: Variant, folder: Path, upstream: int, port: int) -> Path:
    """The configuration's files in an empty folder; the path of its ``gateway.yaml``."""
    _templates(variant, folder / "meta_templates")
    (folder / "policies").mkdir()
    # Every clock runs; only silence may last, or the first of 5000 idle streams would end before the last has begun.
    delivery = {"timeout": {"idle": "300s"}, **variant.policy.get("delivery", {})}
    policy = {**variant.policy, "delivery": delivery}
    (folder / "policies" / "bench.yaml").write_text(json.dumps(policy), encoding="utf-8")
    config: dict[str, object] = {
        # more calls at a time than the largest scenario has streams
        "server": {"host": "127.0.0.1", "port": port, "max_in_flight": 16384},
        "models": {_model(n): _entry(variant, n, upstream) for n in range(variant.models)},
    }
    if variant.keys:
        config["keys"] = {"file": "keys.yaml"}
        digests = (hashlib.sha256(f"gk_bench_{n}".encode()).hexdigest() for n in range(variant.keys))
        entries = {f"bench-{n}": {"sha256": digest} for n, digest in enumerate(digests)}
        (folder / "keys.yaml").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def _model(number: int) -> str:
    return "bench" if number == 0 else f"bench-{number}"


def _templates(variant: Variant, folder: Path) -> None:
    folder.mkdir()
    text = (ROOT / "meta_templates" / f"{TEMPLATE}.yaml").read_text(encoding="utf-8")
    for n in range(variant.templates):
        (folder / f"{_template(n)}.yaml").write_text(text, encoding="utf-8")


def _template(number: int) -> str:
    return TEMPLATE if number == 0 else f"{TEMPLATE}-{number}"


def _entry(variant: Variant, number: int, upstream: int) -> dict[str, object]:
    model = "openai/bench" if variant.speaks == "litellm" else "bench"
    # A second target must differ from the first; both names of loopback lead to the same engine.
    hosts = ("127.0.0.1", "localhost")[: variant.targets]
    template = variant.template if variant.template == "chat" else _template(number % variant.templates)
    targets = [{"speaks": variant.speaks, "url": f"http://{host}:{upstream}/v1", "model": model} for host in hosts]
    if variant.speaks == "litellm":
        targets[0]["key"] = "env:BENCH_KEY"
    return {"template": template, "policy": "bench", "targets": targets}
