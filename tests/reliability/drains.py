"""Measurements of the figures T6 and T7 (``docs/spec/reliability.md`` 2.1): SIGTERM while many clients read streams."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.process import Process, serving
from tests.reliability.figures import PROMPT, request_bytes
from tests.support.serving import WAIT_SECONDS

CONFIG = """\
server: {{drain: {drain}s, max_in_flight: 1000}}
models: {{m: {{template: chat, targets: [{{speaks: scripted, script: script.yaml}}]}}}}
"""


@dataclass(frozen=True, slots=True)
class Drain:
    """The result of a SIGTERM while clients read streams. Seconds count from the signal."""

    whole: int
    """Streams that ended with a finish reason and ``[DONE]``."""
    reported: int
    """Streams that ended with the error event ``server_draining`` and ``[DONE]``."""
    first_end: float
    last_end: float
    exit_seconds: float
    exit_code: int
    records: int
    """Log lines of calls."""


def drain(folder: Path, streams: int, pause: float, drain_seconds: int) -> Drain:
    """Open ``streams`` streams that pause for ``pause`` seconds after their first text, and send SIGTERM meanwhile."""
    files = {
        "gateway.yaml": CONFIG.format(drain=drain_seconds),
        "script.yaml": f"[begun, {{pause: {pause}}}, ended, {{finish: stop}}]\n",
    }
    with serving(folder, files) as process:
        return asyncio.run(_drain(process, streams))


async def _drain(process: Process, streams: int) -> Drain:
    links = [await asyncio.open_connection("127.0.0.1", process.port) for _ in range(streams)]
    for _, writer in links:
        writer.write(request_bytes("m", stream=True))
    async with asyncio.timeout(WAIT_SECONDS):
        for reader, _ in links:
            await reader.readuntil(b"begun")
    signalled = time.monotonic()
    process.signal(signal.SIGTERM)

    async def rest(reader: asyncio.StreamReader) -> tuple[bytes, float]:
        return await reader.read(), time.monotonic() - signalled

    async with asyncio.timeout(WAIT_SECONDS):
        ended = await asyncio.gather(*[rest(reader) for reader, _ in links])
        code = await asyncio.to_thread(process.process.wait)
    seconds = time.monotonic() - signalled
    for _, writer in links:
        writer.close()
    texts = [text for text, _ in ended]
    done = b"data: [DONE]\n\n\r\n0\r\n\r\n"
    assert PROMPT not in process.log
    return Drain(
        whole=sum(b'"finish_reason":"stop"' in text and text.endswith(done) for text in texts),
        reported=sum(b'"code":"server_draining"' in text and text.endswith(done) for text in texts),
        first_end=min(moment for _, moment in ended),
        last_end=max(moment for _, moment in ended),
        exit_seconds=seconds,
        exit_code=code,
        records=process.log.count(" outcome="),
    )
