"""A loopback engine whose weights can be replaced while its address stays: the demo model, exact or with noise.

A gateway with embedded models computes the answers. In front of it, an application forwards each address to one of the
models, and answers 503 to prompts that it is told to fail.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.serving import ROOT, gateway, run_uvicorn, write_files

DEMO = ROOT / "demo/model"
WEIGHTS = {"exact": (0.0, 0), "other": (0.2, 3), "noise": (0.05, 1), "noise-again": (0.03, 2)}
"""Name of the weights → the share of noise in each weight, and the seed of the noise."""
HOT = "params: {force: {temperature: 2}}\n"
"""The policy of an engine that ignores the temperature in a request."""


class SeededEngine:
    """The engine's two addresses, ``first`` and ``second``, and what each of them does."""

    def __init__(self, port: int) -> None:
        self._inner = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self.weights = {"first": "exact", "second": "other"}
        self.fails: Callable[[str], bool] = lambda prompt: False
        """Whether the first address answers 503 to a prompt."""
        self.port = 0

    def url(self, address: str) -> str:
        """The base URL of an address."""
        return f"http://127.0.0.1:{self.port}/{address}/v1"

    async def complete(self, request: Request) -> Response:
        """Forward a request to the model of its address."""
        address, body = request.path_params["address"], json.loads(await request.body())
        if address == "first" and self.fails(body["prompt"]):
            return Response(b'{"error": {"message": "busy"}}', 503, media_type="application/json")
        answer = await self._inner.post("/v1/completions", json={**body, "model": self.weights[address]})
        return Response(answer.content, answer.status_code, media_type="application/json")


@contextmanager
def seeded_engine(folder: Path) -> Iterator[SeededEngine]:
    """Serve the engine. Each of ``WEIGHTS`` is a model, and with ``-hot`` after its name one that ignores temperature.

    ``folder``: a new folder for the weights.
    """
    models = "".join(
        [
            f"  {name}{hot}: {{template: raw, policy: engine{hot}, targets: [{{speaks: embedded, path: {name}}}]}}\n"
            for name in WEIGHTS
            for hot in ("", "-hot")
        ]
    )
    for name, (share, seed) in WEIGHTS.items():
        write_files(folder, {name: DEMO})
        add_noise(folder / name / "model.safetensors", share, seed)
    files = {
        "meta_templates/raw.yaml": "kind: base\n",
        "policies/engine.yaml": "params: {unknown: forward}\n",
        "policies/engine-hot.yaml": HOT,
    }
    with gateway(folder, f"models:\n{models}", files=files) as inner:
        engine = SeededEngine(inner.port)
        route = Route("/{address}/v1/completions", engine.complete, methods=["POST"])
        with run_uvicorn(Starlette(routes=[route])) as port:
            engine.port = port
            yield engine


def add_noise(path: Path, share: float, seed: int) -> None:
    """Add noise to every weight of a file. ``share``: the standard deviation, as a share of that of the tensor."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    rng = np.random.default_rng(seed)
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        values = np.frombuffer(data[begin:end], {"F16": np.float16, "F32": np.float32}[tensor["dtype"]])
        noise = rng.normal(0, share * float(values.astype(np.float32).std()), values.shape)
        data[begin:end] = (values + noise).astype(values.dtype).tobytes()
    path.write_bytes(data)
