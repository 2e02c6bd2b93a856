"""The gateway configurations that are measured, and ``write_config``, which writes the files of one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "sft-demo"
KEY = "gk_bench_0"
RECORDINGS = "calls.sqlite"
"""The file of recordings beside ``gateway.yaml``."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration; the default is one model, one template, the default policy and no keys."""

    description: str
    template: str = TEMPLATE
    """``chat``: messages are passed on unchanged."""
    speaks: str = "completions"
    models: int = 1
    templates: int = 1
    keys: int = 0
    targets: int = 1
    policy: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings that differ from the default policy."""
    path: str = "/v1/chat/completions"
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Added to the body of each request."""
    recorded: bool = False
    """True: every call is recorded in full."""


BASE = Variant("templated chat, completions upstream, default policy, every metric on")

LAYERS: dict[str, Variant] = {
    # the difference to ``gateway`` is the cost of one layer
    "health": Variant("the HTTP server only: GET /health", path="/health"),
    "raw": Variant("text completion, no template", path="/v1/completions"),
    "messages": Variant("messages passed on to a chat server", template="chat", speaks="chat"),
    "keys": Variant("one client key", keys=1),
    "two-targets": Variant("two targets of one model", targets=2),
    "one-attempt": Variant("no retry", policy={"delivery": {"retry": {"attempts": 1}}}),
    "params": Variant(
        "default, clamped and forbidden parameters",
        policy={"params": {"default": {"seed": 1}, "clamp": {"max_tokens": 4096}, "forbid": ["user"]}},
    ),
    "explicit": Variant("every default sent to the engine", policy={"params": {"explicit": True}}),
    "recording": Variant("every call recorded in full", recorded=True),
    "explain": Variant("explanation in each response", extra_fields={"gateway": {"explain": True}}),
    "n=2": Variant("two choices, fetched by two upstream requests (counted as one request)", extra_fields={"n": 2}),
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


def write_config(variant: Variant, folder: Path, upstream_port: int, port: int) -> Path:
    """Write the configuration into an empty folder; returns the path of its ``gateway.yaml``."""
    _write_templates(variant, folder / "meta_templates")
    (folder / "policies").mkdir()
    # The idle timeout is raised: with the default the first of 5000 idle streams would end before the last one starts.
    delivery = {"timeout": {"idle": "300s"}, **variant.policy.get("delivery", {})}
    policy = {**variant.policy, "delivery": delivery, "record": "full" if variant.recorded else "off"}
    (folder / "policies" / "bench.yaml").write_text(json.dumps(policy), encoding="utf-8")
    config: dict[str, object] = {
        # more than the streams of the largest scenario
        "server": {"host": "127.0.0.1", "port": port, "max_in_flight": 16384},
        "models": {_model_name(n): _model(variant, n, upstream_port) for n in range(variant.models)},
    }
    if variant.recorded:
        config["recordings"] = {"path": RECORDINGS}
    if variant.keys:
        config["keys"] = {"file": "keys.yaml"}
        digests = (hashlib.sha256(f"gk_bench_{n}".encode()).hexdigest() for n in range(variant.keys))
        entries = {f"bench-{n}": {"sha256": digest} for n, digest in enumerate(digests)}
        (folder / "keys.yaml").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def _model_name(number: int) -> str:
    return "bench" if number == 0 else f"bench-{number}"


def _write_templates(variant: Variant, folder: Path) -> None:
    folder.mkdir()
    text = (ROOT / "meta_templates" / f"{TEMPLATE}.yaml").read_text(encoding="utf-8")
    for n in range(variant.templates):
        (folder / f"{_template_name(n)}.yaml").write_text(text, encoding="utf-8")


def _template_name(number: int) -> str:
    return TEMPLATE if number == 0 else f"{TEMPLATE}-{number}"


def _model(variant: Variant, number: int, upstream_port: int) -> dict[str, object]:
    model = "openai/bench" if variant.speaks == "litellm" else "bench"
    # The URLs of two targets must differ; both host names reach the same upstream.
    hosts = ("127.0.0.1", "localhost")[: variant.targets]
    template = variant.template if variant.template == "chat" else _template_name(number % variant.templates)
    targets = [{"speaks": variant.speaks, "url": f"http://{host}:{upstream_port}/v1", "model": model} for host in hosts]
    if variant.speaks == "litellm":
        targets[0]["key"] = "env:BENCH_KEY"
    return {"template": template, "policy": "bench", "targets": targets}
