"""CPU time of vLLM's own server: ``python -m bench.vllm_server PYTHON MODEL_FOLDER``, PYTHON with vLLM installed.

The API server (HTTP, chat template, tokenizer, detokenizer, server-sent events) and the engine's processes are measured
separately. The API server has the first core; the engine and the load generator share the last. The model should be
small; the interval between two tokens of a stream, in ms, shows how fast its engine is.

A step of the engine costs the API server the same for one stream as for many, so the time per token falls with their
number. Where the API server is slower than the engine, it joins tokens, and a stream has fewer events.

Added to the first token: the client's time to the token of a stream of one token, without the queue and prefill time
that the engine reports. The streams follow each other with a pause, in which the engine becomes idle, so the rest is
the time in the API server and between the processes, which wake up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import uvloop

from bench import processes
from bench.load.http_client import request_bytes, send_request
from bench.scenarios import SCENARIOS, request_body

PATHS = ("/v1/chat/completions", "/v1/completions")
CONNECTIONS = (1, 16, 64)
WHOLE_TOKENS, STREAM_TOKENS = 20, 50
"""Tokens of a whole answer, as the mock engine's, and of a stream."""
WARM_UP = 1.0
"""Seconds of load before a measurement."""
PAUSE, FIRST_TOKENS = 1.2, 20
"""Seconds between two first tokens (after one second without work the engine stops polling), and their number."""
TEXT_EVENT = re.compile(rb'"(?:content|text)":"[^"]')
ENGINE_TIME = re.compile(rb"^vllm:request_(?:queue|prefill)_time_seconds_sum{.*} (\S+)$", re.MULTILINE)
ENV = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
ENV |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@contextmanager
def start_server(python: Path, model: Path, folder: Path) -> Iterator[tuple[int, int, list[int]]]:
    """Start vLLM; yields its port, the process of the API server, and the engine's processes."""
    port = processes.free_port()
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model.resolve())]
    command += ["--served-model-name", "bench", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512"]
    command += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", str(max(CONNECTIONS))]
    env = {**ENV, "HF_HOME": str(folder)}
    with processes.ChildProcess(command, processes.SYSTEM_CORE, folder / "log", env, folder) as child:
        while b"bench" not in get(port, "/v1/models"):
            child.check_alive()
            time.sleep(0.2)
        # The session also holds multiprocessing's resource tracker, which does nothing here.
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes.session_pids(child.session)}
        engine = [pid for pid, name in names.items() if name.startswith(b"VLLM::")]
        if not engine or child.popen.pid in engine:
            raise processes.MeasurementError(f"the processes of the engine were not found: {names}")
        for thread in (thread for pid in engine for thread in Path(f"/proc/{pid}/task").iterdir()):
            os.sched_setaffinity(int(thread.name), {processes.LOAD_CORE})
        yield port, child.popen.pid, engine


def get(port: int, path: str) -> bytes:
    """The body of a response; empty if the server does not respond."""
    try:
        return send_request(port, path)[1]
    except OSError:
        return b""


async def run_load(port: int, request: bytes, connections: int, seconds: float) -> list[tuple[bytes, float]]:
    """Requests one after the other on each connection: each response, and the seconds to its first text.

    A connection sends at least one request.
    """
    responses: list[tuple[bytes, float]] = []
    end = time.monotonic() + seconds

    async def use_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        response, began = b"", time.monotonic()
        while not response or began < end:
            writer.write(request)
            response, first = b"", 0.0
            while not response.endswith((b"0\r\n\r\n", b"}")):  # the last chunk of a stream, or a whole answer
                data = await reader.read(1 << 16)
                response += data
                if not first and TEXT_EVENT.search(response):
                    first = time.monotonic() - began
                if not data:
                    break
            if not first or not data:
                raise processes.MeasurementError(f"no answer, or a part of one: {response[-300:]!r}")
            responses.append((response, first))
            began = time.monotonic()
        writer.close()

    await asyncio.gather(*(use_connection() for _ in range(connections)))
    return responses


def request_for(port: int, path: str, tokens: int, *, stream: bool) -> bytes:
    """A request for exactly this number of tokens."""
    fields = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
    body = request_body(SCENARIOS["nonstream@32"], path, fields, stream)
    return request_bytes("POST", port, path, body or b"", {})


def measure(port: int, api: int, engine: list[int], path: str, stream: bool, seconds: float) -> None:
    """Measure whole answers or streams of one path, and print a line for each number of connections."""
    tokens = STREAM_TOKENS if stream else WHOLE_TOKENS
    request = request_for(port, path, tokens, stream=stream)
    for connections in CONNECTIONS:
        uvloop.run(run_load(port, request, connections, WARM_UP))
        began = time.monotonic()
        api_cpu, engine_cpu = (sum(map(processes.process_cpu_seconds, pids)) for pids in ([api], engine))
        responses = uvloop.run(run_load(port, request, connections, seconds))
        elapsed = time.monotonic() - began
        api_us = (processes.process_cpu_seconds(api) - api_cpu) * 1e6
        engine_us = (sum(map(processes.process_cpu_seconds, engine)) - engine_cpu) * 1e6
        total, events = len(responses) * tokens, sum(len(TEXT_EVENT.findall(response)) for response, _ in responses)
        print(
            f"{path:20} {'stream' if stream else 'whole':6} x{connections:<3} {total / elapsed:6.0f} tokens/s, interval"
            f" {connections * elapsed / total * 1e3:4.1f}, API server: {api_us / len(responses):6.0f} us each,"
            f" {api_us / total:4.0f} a token, {api_us / events:4.0f} an event; engine {engine_us / total:5.0f} a token;"
            f" {events / len(responses):4.1f} events each",
            flush=True,
        )


def added_to_first_token(port: int, path: str) -> list[float]:
    """Milliseconds of each of ``FIRST_TOKENS`` streams."""
    request = request_for(port, path, 1, stream=True)
    engine_seconds, added = 0.0, []
    for _ in range(FIRST_TOKENS + 1):
        time.sleep(PAUSE)
        ((_, first),) = uvloop.run(run_load(port, request, 1, 0))
        before, engine_seconds = engine_seconds, sum(map(float, ENGINE_TIME.findall(get(port, "/metrics"))))
        added.append((first - (engine_seconds - before)) * 1e3)
    return added[1:]  # the first one has no time before it


def main() -> None:
    """Start the server, print one answer, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="a Python with vLLM installed")
    parser.add_argument("model", type=Path, help="a folder with weights, tokenizer and chat template")
    parser.add_argument("--seconds", type=float, default=4, help="duration of one measurement (default: 4)")
    parser.add_argument("--rounds", type=int, default=1, help="default: 1")
    args = parser.parse_args()
    processes.set_up_process()
    with tempfile.TemporaryDirectory() as home, start_server(args.python, args.model, Path(home)) as server:
        port, api, engine = server
        request = request_for(port, PATHS[0], 3, stream=False)
        print(get(port, "/version").decode(), uvloop.run(run_load(port, request, 1, 0))[0][0].decode())
        for _ in range(args.rounds):
            print("load average", *(f"{load:.2f}" for load in os.getloadavg()))
            for path in PATHS:
                for stream in (False, True):
                    measure(port, api, engine, path, stream, args.seconds)
                added = added_to_first_token(port, path)
                print(f"{path} adds {median(added):.2f} ms to the first token ({min(added):.2f}-{max(added):.2f})")


if __name__ == "__main__":
    main()
