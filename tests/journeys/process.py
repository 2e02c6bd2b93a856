"""``python -m gateway serve`` in a folder, called over HTTP."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, write_files


def environment(**more: str) -> dict[str, str]:
    """This process's environment with the package on the path, no proxies, and of our settings only the fast paths."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("GATEWAY_") or name.lower().endswith("_proxy")) or name == "GATEWAY_FAST_PATHS"
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


OUTCOMES = {"ok": r" is in use now: | is already in use\n", "error": "the old configuration keeps serving"}
"""What the log says at the end of a reload, as expressions."""


class Process:
    """One running ``gateway serve``."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self._log = log
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            timeout=60,
            trust_env=False,
            verify=False,
            limits=httpx.Limits(max_keepalive_connections=0),  # uvicorn closes an idle connection after 5 s
        )

    @property
    def log(self) -> str:
        """Standard error so far."""
        return self._log.read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Replace a file of the configuration atomically, as editors do."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def reloads(self, result: str) -> int:
        """Number of reloads with this result."""
        found = re.search(rf'gateway_reloads_total{{result="{result}"}} (\d+)', self.http.get("/metrics").text)
        return int(found[1]) if found else 0

    def reload(self, result: str) -> None:
        """Send SIGHUP and wait until the log has the result of a reload that began after the call.

        Done twice, because a reload of the file watcher may end first. The log is checked instead of the metric because
        a thread writes it, so it may come later.
        """
        for _ in range(2):
            before = len(re.findall(OUTCOMES[result], self.log))
            self.signal(signal.SIGHUP)
            assert eventually(lambda before=before: len(re.findall(OUTCOMES[result], self.log)) > before), self.log

    def models(self) -> list[str]:
        return [card["id"] for card in self.http.get("/v1/models").json()["data"]]

    def call_model(self, model: str) -> str:
        """Call a model; returns its answer or the error code."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        answer = self.http.post("/v1/chat/completions", json=body).json()
        if "error" in answer:
            return str(answer["error"]["code"])
        return str(answer["choices"][0]["message"]["content"])

    def accepts(self) -> bool:
        """True: the process accepts new connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


SERVE = ("-m", "gateway", "serve")


@contextmanager
def serving(folder: Path, files: Mapping[str, str], command: Sequence[str] = SERVE, **env: str) -> Iterator[Process]:
    """Serve ``files`` (``gateway.yaml`` among them) until the block ends; ``command``: Python's arguments."""
    port = free_port()
    log = folder / "stderr.log"
    write_files(folder, files)
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment(GATEWAY_SERVER__PORT=str(port), UVICORN_PORT=str(port), **env),
            stderr=stderr,
        )
    served = Process(folder, port, process, log)
    try:
        assert eventually(lambda: process.poll() is not None or served.accepts()), served.log
        assert process.poll() is None, served.log
        yield served
    finally:
        served.http.close()
        process.kill()
        process.wait()


def run(folder: Path, *arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``gateway ARGUMENTS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=folder,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
