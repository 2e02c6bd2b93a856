"""How many whole answers a second? wrk on bare connections; without wrk, a small loop of our own.

Both keep every connection busy with one request after the other. The loop is slower than wrk, so a fast proxy
measured with it looks slower than it is; the results name which one was used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import uvloop

from bench.processes import Unfit
from bench.spread import percentile
from bench.streams import request_of

WRK_SCRIPT = """
wrk.method = "%(method)s"
%(headers)s
local file = io.open(%(body)s, "rb")
if file then wrk.body = file:read("*a"); file:close() end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\\nBENCH {"requests":%%d,"seconds":%%.6f,"errors":%%d,"bad_status":%%d,"p50_ms":%%.4f,"p99_ms":%%.4f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.timeout, e.status,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def tool() -> str:
    """What generates the load on this machine."""
    return "wrk" if shutil.which("wrk") else "python"


def drive(
    port: int, path: str, body: Path | None, headers: Mapping[str, str], connections: int, seconds: float, folder: Path
) -> dict[str, float]:
    """requests, seconds, errors, bad_status, p50_ms, p99_ms; on the core of the caller."""
    if tool() == "wrk":
        command = _wrk(port, path, body, headers, connections, seconds, folder)
    else:
        command = [sys.executable, "-m", "bench.calls", str(port), path, str(body or ""), json.dumps(dict(headers))]
        command += [str(connections), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("BENCH ")), None)
    if line is None:
        raise Unfit(f"the load generator failed: {(done.stderr or done.stdout).strip()[-200:]}")
    counts: dict[str, float] = json.loads(line.removeprefix("BENCH "))
    return counts


def _wrk(
    port: int, path: str, body: Path | None, headers: Mapping[str, str], connections: int, seconds: float, folder: Path
) -> list[str]:
    lines = [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items()]
    script = folder / "wrk.lua"
    script.write_text(
        WRK_SCRIPT
        % {
            "method": "GET" if body is None else "POST",
            "headers": "\n".join(['wrk.headers["content-type"] = "application/json"', *lines]),
            "body": json.dumps(str(body or "/dev/null")),
        },
        encoding="utf-8",
    )
    url = f"http://127.0.0.1:{port}{path}"
    duration = f"{max(1, round(seconds))}s"  # wrk counts whole seconds
    return ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "30s", "--latency", "-s", str(script), url]


async def _loop(port: int, request: bytes, connections: int, seconds: float) -> dict[str, float]:
    times: list[float] = []
    failures = {"errors": 0, "bad_status": 0}
    end = time.monotonic() + seconds

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.monotonic()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))
            failures["bad_status"] += not head.startswith(b"HTTP/1.1 200")
            times.append(time.monotonic() - began)
        writer.close()

    began = time.monotonic()
    async with asyncio.timeout(seconds + 30):
        for outcome in await asyncio.gather(*(worker() for _ in range(connections)), return_exceptions=True):
            failures["errors"] += isinstance(outcome, BaseException)
    return {
        "requests": len(times),
        "seconds": time.monotonic() - began,
        **failures,
        "p50_ms": percentile(times, 50) * 1000,
        "p99_ms": percentile(times, 99) * 1000,
    }


def main() -> None:
    """The loop as a process of its own; started by ``drive``."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("port", int), ("path", str), ("body", str), ("headers", json.loads)):
        parser.add_argument(name, type=kind)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    request = request_of(args.port, args.path, Path(args.body or "/dev/null").read_bytes(), args.headers)
    if not args.body:
        request = request.replace(b"POST", b"GET", 1)
    print("BENCH " + json.dumps(uvloop.run(_loop(args.port, request, args.connections, args.seconds))))


if __name__ == "__main__":
    main()
