"""A process without free descriptors, or with an unread log pipe, continues to serve and shuts down normally."""

from __future__ import annotations

import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.journeys.process import Process, serving
from tests.support.serving import WAIT_SECONDS, eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and RLIMIT_NOFILE")

FILES = {"answer.yaml": "[hi, {finish: stop}]\n"}
CONFIG = (
    "server: {{{server}}}\nmodels: {{m: {{template: chat, targets: [{{speaks: scripted, script: answer.yaml}}]}}}}\n"
)

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
FEW_DESCRIPTORS = {
    "own": LIMIT + "import sys; from gateway.cli import main; sys.exit(main(['serve']))",
    "asgi": LIMIT + "import uvicorn; uvicorn.main(['gateway.asgi:app'], auto_envvar_prefix='UVICORN')",
}

UNREAD_LOG = """
import os, sys
_, write = os.pipe()
os.dup2(write, 2)
from gateway.cli import main
sys.exit(main(["serve"]))
"""

NO_LOG = """
import os, sys
os.close(2)
os.execv(sys.executable, [sys.executable, "-m", "gateway", "serve"])
"""


def files(server: str) -> dict[str, str]:
    return {**FILES, "gateway.yaml": CONFIG.format(server=server)}


def seconds_of_work(process: Process) -> float:
    """Processor time of the process."""
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def without_descriptors(folder: Path, server: str) -> Iterator[tuple[Process, ExitStack]]:
    """A process whose descriptors are all in use until the connections in the stack are closed."""
    command = ("-c", FEW_DESCRIPTORS[server])
    with serving(folder, files(""), command, GATEWAY_CONFIG="gateway.yaml") as process, ExitStack() as links:
        assert process.call_model("m") == "hi"
        for _ in range(100):
            links.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=WAIT_SECONDS))
        assert eventually(lambda: "cannot be checked for changes" in process.log), process.log
        yield process, links


@pytest.mark.parametrize("server", FEW_DESCRIPTORS)
def test_a_process_without_free_descriptors_shuts_down(tmp_path: Path, server: str) -> None:
    with without_descriptors(tmp_path, server) as (process, _):
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == (
            0 if server == "own" else -signal.SIGTERM
        )  # uvicorn raises it again
    assert "Traceback" not in process.log


def test_a_process_without_free_descriptors_waits_and_then_serves(tmp_path: Path) -> None:
    with without_descriptors(tmp_path, "own") as (process, links):
        before = seconds_of_work(process)
        assert not eventually(lambda: seconds_of_work(process) - before > 0.5, 1.0), "it spins"
        links.close()
        assert eventually(lambda: "can be checked for changes again" in process.log), process.log
        assert process.log.count("cannot be checked for changes") == 1
        process.write("answer.yaml", "[changed, {finish: stop}]\n")
        assert eventually(lambda: process.call_model("m") == "changed"), process.log


@pytest.mark.parametrize("server", ["workers: 1", "workers: 2"])
def test_an_unread_log_pipe_does_not_block_calls(tmp_path: Path, server: str) -> None:
    call = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    bad = call + b"Content-Length: 2\r\n\r\n[]"
    with serving(tmp_path, files(server), ("-c", UNREAD_LOG)) as process:

        def dropped() -> float:
            found = re.search(r"^gateway_log_lines_dropped_total (\S+)", process.http.get("/metrics").text, re.M)
            return float(found[1]) if found else 0.0

        for number in range(1, 201):
            with socket.create_connection(("127.0.0.1", process.port), timeout=WAIT_SECONDS) as link:
                link.sendall(bad * 99 + call + b"Connection: close\r\nContent-Length: 2\r\n\r\n[]")
                while link.recv(65536):
                    pass
            if number % 10 == 0 and dropped():
                break
        assert dropped() > 0
        assert process.http.get("/health").status_code == 200
        assert process.call_model("m") == "hi"
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 0


def test_a_gateway_without_standard_error_serves(tmp_path: Path) -> None:
    with serving(tmp_path, files(""), ("-c", NO_LOG)) as process:
        assert process.call_model("m") == "hi"
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 0
