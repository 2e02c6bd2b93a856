"""Renders what cannot be metered, in a process that may be killed. Run by ``confined.py``, never imported here.

It reads jobs from standard input, JSON behind eight bytes of length, and answers each on standard output: two lengths
of eight bytes, a small JSON object with the job's number, and the text as it is (the reader would hold everybody up
while it parsed some megabytes). Before the first job it gives up what it will not need: files, children and memory
beyond ``MEMORY``.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from datetime import datetime
from typing import Any, BinaryIO

MEMORY = 512 * 1024 * 1024
CPU = 2
"""Seconds of processor time for one job; a second bound, should nobody kill this process in time."""
MOST_OUTPUT = 8 * 1024 * 1024
"""Characters of one rendering."""


def main() -> None:
    """Serve until standard input ends."""
    sys.path.append(sys.argv[1])
    from gateway.template.huggingface.sandbox.environment import Environment, Refused
    from gateway.template.huggingface.sandbox.script import failure, new_context, told

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    first = _received(source)
    if first is None:
        return
    at = first["clock"] and datetime.fromisoformat(first["clock"])
    now = datetime.min

    def clock() -> datetime:
        return at or now  # the gateway's own moment: this process does not know its time zone

    environment = Environment(clock)
    _warm_up(environment)
    _confine()
    try:
        templates = [environment.from_string(text) for text in first["sources"]]
    except Exception as error:
        _send(sink, first, {"failed": f"{type(error).__name__}: {told(error)}"})
        return
    _send(sink, first, {"ready": True})
    while (job := _received(source)) is not None:
        _allow_more_time()
        now, text = datetime.fromisoformat(job["now"]), ""
        template = templates[job["script"]]
        context: Any = new_context(template, job["variables"])
        try:
            text = _bounded(template.root_render_func(context))
        except Refused as refusal:
            answer: dict[str, Any] = {"refused": told(refusal)}
        except Exception as error:
            answer = {"failed": failure(error, template)}
        else:
            answer = {"undefined": list(context.undefined)}
        _send(sink, job, answer, text)


def _warm_up(environment: Any) -> None:
    """Import all that jinja2 and Python import on first use: no file can be opened later."""
    import jinja2.constants
    import jinja2.debug  # noqa: F401

    environment.from_string(r"{{ '\n\u00e4' | tojson }}{{ strftime_now('%d %B %Y') }}").render()


def _bounded(pieces: Any) -> str:
    kept, length = [], 0
    for piece in pieces:
        length += len(piece)
        if length > MOST_OUTPUT:
            raise OverflowError(f"the rendering grew beyond {MOST_OUTPUT} characters")
        kept.append(piece)
    return "".join(kept)


def _confine() -> None:
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))


def _allow_more_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU, hard))


def _received(source: BinaryIO) -> Any:
    head = source.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack(">Q", head)
    return json.loads(source.read(length))


def _send(sink: BinaryIO, job: dict[str, Any], answer: dict[str, Any], text: str = "") -> None:
    head = json.dumps({"number": job["number"], **answer}).encode("ascii")
    body = text.encode("utf-8", "surrogatepass")
    sink.write(struct.pack(">QQ", len(head), len(body)) + head + body)
    sink.flush()


if __name__ == "__main__":
    main()
