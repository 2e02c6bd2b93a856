"""The processes that check schemas and render chat templates are killed during a call: SIGKILL, over HTTP."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metatemplate.limited_process.process import WORKER
from tests.support.serving import WAIT_SECONDS
from tests.support.world import World, world_fixture

CONFIG = """
models:
  structured: {{template: chatml, targets: [{{speaks: completions, url: "{url}", engine: vllm}}]}}
  rendered: {{template: pages, targets: [{{speaks: scripted, script: answer.yaml}}]}}
"""
FILES = {
    "answer.yaml": "[sum, {finish: stop}]",
    # The filter ``center`` is rendered in the template's process only.
    "meta_templates/pages.yaml": """
kind: jinja
template: "<s>{{ messages[0].content | center(9) }}</s>"
""",
}
NUMBERS = itertools.count()


def structured() -> dict[str, Any]:
    """A request with a schema that no other request has, because the gateway remembers checked schemas."""
    schema = {
        "title": f"schema {next(NUMBERS)}",
        "type": "object",
        "properties": {"sum": {"enum": [2]}},
        "required": ["sum"],
    }
    return {
        "model": "structured",
        "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
    }


CALLS: dict[str, tuple[Callable[[], dict[str, Any]], str, str]] = {  # name: (request, job module, purpose)
    "the schema checker": (structured, "gateway.stream.json_schema.check_job", "checks JSON schemas"),
    "the process of a chat template": (
        lambda: {"model": "rendered"},
        "metatemplate.chat_templates.sandbox.render_job",
        "renders the template pages",
    ),
}
world = world_fixture(lambda up: CONFIG.format(url=up.url("constrained-vllm")), FILES)


def processes(job_module: str) -> set[int]:
    """The children of this process that do the jobs of a module."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if parent == os.getpid() and {str(WORKER).encode(), job_module.encode()} <= set(command):
            found.add(int(folder.name))
    return found


@contextmanager
def killing(job_module: str, times: int) -> Iterator[list[int]]:
    """Kill the next processes of a job module as soon as they exist, long before they have imported the module."""
    for process in processes(job_module):  # the next job starts a process
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while len(killed) < times and not done.is_set():
            for process in processes(job_module).difference(killed):
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            time.sleep(0.001)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join(WAIT_SECONDS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_process_is_killed_once_is_answered(world: World, name: str, stream: bool) -> None:
    request, job_module, _ = CALLS[name]
    with killing(job_module, times=1) as killed:
        response = world.served.chat(**request(), stream=stream)
    assert len(killed) == 1
    assert response.status_code == 200, response.text
    assert '"finish_reason":"stop"' in response.text
    assert '"error"' not in response.text


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_process_is_killed_twice_may_be_sent_again(world: World, name: str) -> None:
    request, job_module, purpose = CALLS[name]
    with killing(job_module, times=2) as killed:
        response = world.served.chat(**request())
    assert len(killed) == 2
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    error = response.json()["error"]
    assert (error["code"], error["message"]) == ("overloaded", f"the process that {purpose} was killed; retry later")
    assert world.served.chat(**request()).status_code == 200
