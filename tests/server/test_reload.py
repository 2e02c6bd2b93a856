"""One edit is reported once, and files with the content in use are not reloaded."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from tests.support.serving import write_files

GOOD = "models: {m: {template: chat, targets: [{speaks: scripted, script: says.yaml}]}}\n"
OTHER = GOOD.replace("m:", "n:", 1)
BROKEN = GOOD + "bad: [\n"

SIGNAL, WATCHER = False, True

IN_USE, UNCHANGED, REFUSED = "is in use now", "is already in use", "reload refused"


STEPS: dict[str, tuple[list[tuple[str | None, bool]], list[str], tuple[int, int]]] = {
    # (new text of gateway.yaml or None, who asks for the reload), …; the lines of the log; reloads that succeed, fail
    "a signal and the watcher, one edit": ([(OTHER, SIGNAL), (None, WATCHER)], [IN_USE], (1, 0)),
    "a signal and the watcher, one broken edit": ([(BROKEN, SIGNAL), (None, WATCHER)], [REFUSED], (0, 1)),
    "two signals, one broken edit": ([(BROKEN, SIGNAL), (None, SIGNAL)], [REFUSED, REFUSED], (0, 2)),
    "two broken edits": ([(BROKEN, WATCHER), (BROKEN + "x", WATCHER)], [REFUSED, REFUSED], (0, 2)),
    "a signal without an edit": ([(None, SIGNAL)], [UNCHANGED], (0, 0)),
    "the same text saved again": ([(GOOD, WATCHER)], [], (0, 0)),
    "a broken edit undone": ([(BROKEN, WATCHER), (GOOD, WATCHER)], [REFUSED, UNCHANGED], (0, 1)),
    "an edit and back": ([(OTHER, WATCHER), (GOOD, WATCHER)], [IN_USE, IN_USE], (2, 0)),
}


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    write_files(tmp_path, {"gateway.yaml": GOOD, "says.yaml": "[hi, {finish: stop}]"})
    runtime = Runtime(ConfigLoader(tmp_path / "gateway.yaml", {}))
    runtime.open(runtime.loader.load())
    return runtime


def reloads(runtime: Runtime) -> tuple[float | None, float | None]:
    registry = CollectorRegistry()
    registry.register(runtime.metrics.snapshot())
    name = "gateway_reloads_total"
    return registry.get_sample_value(name, {"result": "ok"}), registry.get_sample_value(name, {"result": "error"})


@pytest.mark.parametrize(("steps", "lines", "counts"), STEPS.values(), ids=STEPS)
def test_a_change_is_reported_once(
    runtime: Runtime,
    caplog: pytest.LogCaptureFixture,
    steps: list[tuple[str | None, bool]],
    lines: list[str],
    counts: tuple[int, int],
) -> None:
    caplog.set_level(logging.INFO)
    for text, watched in steps:
        if text is not None:
            runtime.loader.path.write_text(text)
        asyncio.run(runtime.reload(watched=watched))
    assert [next(line for line in (IN_USE, UNCHANGED, REFUSED) if line in one) for one in caplog.messages] == lines
    assert reloads(runtime) == counts


def test_an_edited_script_is_loaded_though_the_configuration_is_the_same(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (runtime.loader.path.parent / "says.yaml").write_text("[other, {finish: stop}]")
    asyncio.run(runtime.reload(watched=True))
    assert IN_USE in caplog.text


async def test_the_status_shows_a_reload_after_its_end(runtime: Runtime) -> None:
    reload = asyncio.create_task(runtime.reload())
    await asyncio.sleep(0)  # the task waits for the thread that reads the files
    assert (await runtime.shared_status())["last_reload"] == {"at": None, "error": None}
    assert await reload
    assert (await runtime.shared_status())["last_reload"]["at"].endswith("Z")
