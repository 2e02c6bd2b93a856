"""Our own HTTP beside the libraries': instructions of one call: ``python -m bench.http_libraries``.

Servers: the same handlers in our own server and in uvicorn (httptools, uvloop). Clients: one POST on a kept connection
by our own client, by aiohttp and by httpx. The counts are those of ``bench.instructions``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import uvloop

from bench.instructions import QUESTION, CountedGateway, Counts, Engine, callgrind, can_count, count_event, count_server

BODY = b'{"model": "m", "prompt": "What is 1+1?", "stream": false}'
HEADERS = {"content-type": "application/json"}
FEW, MANY = 50, 250
"""The numbers of POSTs of two runs, whose difference is the cost of the POSTs alone."""


def main() -> int:
    """Count the servers and the clients, and print them beside ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--post", nargs=3, metavar=("CLIENT", "URL", "TIMES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve_uvicorn(Path(given.serve)))
        return 0
    if given.post:
        client, url, times = given.post
        uvloop.run(CLIENTS[client](url, int(times)))
        return 0
    if not can_count():
        return 3
    servers = {"own": "bench.instructions", "uvicorn": "bench.http_libraries"}
    counts = {name: count_server(module, _cases) for name, module in servers.items()}
    for case in counts["own"]:
        _print(f"server, {case}", {name: found[case].instructions for name, found in counts.items()})
    _print("client, one POST", {name: _instructions_of_post(name) for name in CLIENTS})
    return 0


def _print(title: str, counts: Mapping[str, int]) -> None:
    print(title)
    for name, count in counts.items():
        print(f"  {name:<10}{count:>12,}  {count / counts['own']:.2f} times our own")


def _cases(gateway: CountedGateway) -> dict[str, Counts]:
    gateway.ask(QUESTION, 20, 1)
    gateway.start_counting()
    return {
        "a plain answer": gateway.count(lambda: gateway.ask(QUESTION), 50),
        "a streamed event": count_event(gateway, 1),
    }


async def _serve_uvicorn(folder: Path) -> None:
    """Serve a configuration in uvicorn, and print the port."""
    import uvicorn

    from gateway.server.application import create_app
    from gateway.server.sockets import bind
    from gateway.telemetry import log_writer

    log_writer.WRITE_SECONDS = 3600
    log_writer.log_to_stderr("info", "text", lambda: None)
    bound = bind("127.0.0.1", 0)
    bound.listen()
    print(bound.getsockname()[1], flush=True)
    app = create_app(folder / "gateway.yaml", {})
    config = uvicorn.Config(app, http="httptools", ws="none", log_config=None, access_log=False)
    await uvicorn.Server(config).serve([bound])


async def _post_own(url: str, times: int) -> None:
    from gateway.backend.http_client.client import HttpClient

    client = HttpClient()
    endpoint = client.endpoint(url, HEADERS)
    for _ in range(times):
        connection = await endpoint.post(BODY)
        while await connection.read():
            pass
        connection.release()
    await client.aclose()


async def _post_aiohttp(url: str, times: int) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with session.post(url, data=BODY, headers=HEADERS) as response:
                await response.read()


async def _post_httpx(url: str, times: int) -> None:
    import httpx

    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(times):
            (await client.post(url, content=BODY, headers=HEADERS)).raise_for_status()


CLIENTS: Mapping[str, Callable[[str, int], Coroutine[None, None, None]]] = {
    "own": _post_own,
    "aiohttp": _post_aiohttp,
    "httpx": _post_httpx,
}


def _instructions_of_post(client: str) -> int:
    few, many = (_instructions_of_posts(client, times) for times in (FEW, MANY))
    return (many - few) // (MANY - FEW)


def _instructions_of_posts(client: str, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        counts, url = Path(folder) / "counts", f"http://127.0.0.1:{Engine().port}/v1/completions"
        with callgrind(["-m", "bench.http_libraries", "--post", client, url, str(times)], counts) as child:
            if child.wait():
                raise RuntimeError(f"the client {client} failed")
        found = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(errors="replace"), re.MULTILINE)
        assert found is not None
        return int(found[1])


if __name__ == "__main__":
    sys.exit(main())
