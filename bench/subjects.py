"""What is measured? The gateway in its variants, its peers, and the engine without anything before it.

A subject is started between the load and one of two upstreams: ``fast`` (nginx, whole answers) or ``paced``
(``bench.upstream``, streams too).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import install
from bench.processes import Unfit
from bench.variants import KEY, ROOT, VARIANTS, Variant, write

CHAT = "/v1/chat/completions"
PINS = {
    "litellm-proxy": "litellm[proxy]==1.106.2",
    "portkey": "@portkey-ai/gateway@1.15",
    "sglang-router": "sglang-router==0.3.2",
    "vllm-router": "vllm-router==0.1.17",
}
ALONE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "BENCH_KEY": "none", "DO_NOT_TRACK": "1"}
"""No subject looks anything up on the network."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subject runs: its folder, its ports and the engine behind it."""

    cache: Path
    folder: Path
    port: int
    spare_port: int
    upstream: int


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to measure."""

    name: str
    says: str
    command: Callable[[Place], list[str]] | None
    """Installs what is missing; raises ``Unfit``. None: the load goes to the upstream itself."""
    path: str = CHAT
    headers: Callable[[Place], Mapping[str, str]] = lambda place: {}
    extra: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    patience: float = 60.0
    """Seconds it may take to be ready."""
    home: Path = ROOT
    """The checkout whose gateway it runs."""


def _gateway(variant: Variant) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        config = write(variant, place.folder, place.upstream, place.port)
        return [sys.executable, "-m", "gateway", "serve", "--config", str(config)]

    return command


def _nginx(place: Place) -> list[str]:
    binary = install.nginx(place.cache / "nginx")
    servers = f"""
  upstream engine {{ server 127.0.0.1:{place.upstream}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{place.port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}"""
    return nginx_command(binary, place.folder, servers)


def nginx_command(binary: Path, folder: Path, servers: str) -> list[str]:
    """nginx in one foreground process, with everything it writes below ``folder``."""
    temporary = "".join(f"  {kind}_temp_path {folder}/{kind};\n" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr error;\n"
        "events { worker_connections 16384; }\n"
        "http {\n  access_log off;\n  default_type application/json;\n  tcp_nodelay on;\n"
        "  keepalive_requests 100000000;\n  client_max_body_size 16m;\n  client_body_buffer_size 2m;\n"
        f"  client_body_temp_path {folder}/body;\n{temporary}{servers}\n}}\n",
        encoding="utf-8",
    )
    return [str(binary), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def _sglang(place: Place) -> list[str]:
    binary = install.python_packages(place.cache / "sglang-router", PINS["sglang-router"]) / "python"
    return [str(binary), "-m", "sglang_router.launch_router", *_router(place), "--log-level", "error"]


def _vllm(*options: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        binary = install.python_packages(place.cache / "vllm-router", PINS["vllm-router"]) / "vllm-router"
        return [str(binary), *_router(place), "--log-level", "error", *options]

    return command


def _router(place: Place) -> list[str]:
    return [
        *("--worker-urls", f"http://127.0.0.1:{place.upstream}", "--host", "127.0.0.1", "--port", str(place.port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.spare_port)),
    ]


def _portkey(place: Place) -> list[str]:
    modules = install.node_package(place.cache / "portkey", PINS["portkey"])
    script = modules / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    return ["node", str(script), f"--port={place.port}", "--headless"]


def _portkey_headers(place: Place) -> Mapping[str, str]:
    return {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{place.upstream}/v1",
        "authorization": "Bearer none",
    }


def _litellm(place: Place) -> list[str]:
    binary = install.python_packages(place.cache / "litellm-proxy", PINS["litellm-proxy"]) / "litellm"
    target = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{place.upstream}/v1", "api_key": "none"}
    config = place.folder / "config.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "bench", "litellm_params": target}]}), encoding="utf-8")
    options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(place.port)]
    return [str(binary), *options, "--num_workers", "1", "--telemetry", "False"]


def _library(place: Place) -> list[str]:
    raise Unfit("it serves nothing; it is a library, measured in a scenario of its own")


def _variant(name: str, variant: Variant) -> Subject:
    key = {"authorization": f"Bearer {KEY}"} if variant.keys else {}
    return Subject(name, variant.says, _gateway(variant), variant.path, lambda _: key, variant.extra, ALONE)


PEERS = (
    Subject("direct", "the engine, nothing in between", None),
    Subject("nginx", "plain reverse proxy, one worker", _nginx),
    Subject("sglang-router", f"{PINS['sglang-router']}, default policy", _sglang),
    Subject("vllm-router-rr", f"{PINS['vllm-router']}, round robin", _vllm("--policy", "round_robin")),
    Subject("vllm-router", f"{PINS['vllm-router']}, default policy: has the engine render first", _vllm()),
    Subject("portkey", PINS["portkey"], _portkey, headers=_portkey_headers, env={"NODE_ENV": "production"}),
    Subject(
        "litellm-proxy",
        PINS["litellm-proxy"],
        _litellm,
        # its proxy refuses to start without a key unless told so; without one it has less to do
        env={**ALONE, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
        patience=120.0,
    ),
    Subject("litellm-sdk", "the LiteLLM SDK called in a loop, 32 at a time", _library, env=ALONE),
    Subject("opencompass", "OpenCompass' own parser, in process", _library),
    Subject("lazyllm", "LazyLLM's own ChatPrompter, in process", _library),
)
SUBJECTS: dict[str, Subject] = {
    **{name: _variant(name, variant) for name, variant in VARIANTS.items()},
    **{peer.name: peer for peer in PEERS},
}


def before(checkout: Path) -> Subject:
    """The gateway of another checkout, to be measured beside this one's; it runs with this one's libraries."""
    says = "the gateway of the checkout named by --before"
    return Subject("gateway-before", says, _gateway(VARIANTS["gateway"]), env=ALONE, home=checkout)


def environment(subject: Subject) -> dict[str, str]:
    """What a subject's process gets on top of ours."""
    path = os.pathsep.join((str(subject.home), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    return {**subject.env, **({"PYTHONPATH": path} if subject.name.startswith("gateway") else {})}
