"""LogWriter wait for each other, and none is lost, changed or out of order."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.telemetry.call_log import CALLS, log_call
from gateway.telemetry.log_writer import FORMAT, MAX_WAITING, WRITE_SECONDS, JsonFormatter, LogWriter
from gateway.telemetry.record import Record
from tests.journeys.process import SERVE, serving
from tests.support.serving import WAIT_SECONDS, eventually

RECORD = Record(
    *("req_1", "chat", "m", "ok", 200, False),
    duration=0.0123,
    upstream=0.0111,
    overhead=0.0012,
    target="m/0",
    attempts=1,
    prompt_tokens=9,
)
TIMES = "seconds=0.0123 upstream=0.0111 overhead=0.0012"
SAID = f"req_1 chat model=m status=200 outcome=ok target=m/0 attempts=1 {TIMES} tokens=9+?"
FAILED = replace(RECORD, outcome="upstream_error", status=502)


class Stream(io.StringIO):
    """A stream that knows each write of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


@contextmanager
def only_handler(*handlers: logging.Handler) -> Iterator[None]:
    """The root's handlers and no others, everything from INFO on."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    root.handlers = list(handlers)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)


@pytest.mark.parametrize("moment", [0.0, 1763728848.0, 1763728848.9996, 1763728848.0004, 1763728899.25, 2e9 - 0.001])
@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING, logging.ERROR])
def test_a_line_is_what_loggings_own_formatter_makes_of_it(moment: float, level: int) -> None:
    stream, record = Stream(), logging.LogRecord("x", level, "", 0, "said", None, None)
    record.created = moment
    record.msecs = int((moment - int(moment)) * 1000) + 0.0
    lines = LogWriter(stream.write, now=lambda: moment)
    lines.write_line(level, "said")
    lines.flush()
    assert stream.getvalue() == logging.Formatter(FORMAT).format(record) + "\n"


def test_the_date_moves_on() -> None:
    moments = iter([0.0, 0.5, 86400.0, 0.25])
    stream = Stream()
    lines = LogWriter(stream.write, now=lambda: next(moments))
    for _ in range(4):
        lines.write_line(logging.INFO, "")
    lines.flush()
    days = [line.split()[0] for line in stream.getvalue().splitlines()]
    assert days[0] == days[1] == days[3] != days[2]


def test_under_load_lines_share_their_writes_and_the_last_is_not_forgotten() -> None:
    stream = Stream()
    with only_handler(LogWriter(stream.write)):
        log_call(RECORD)
        assert eventually(lambda: len(stream.writes) == 1)  # the first after a quiet moment is written at once
        for _ in range(50):
            log_call(RECORD)
        assert eventually(lambda: stream.getvalue().count(SAID) == 51, 10 * WRITE_SECONDS)
    assert len(stream.writes) < 20


def test_a_warning_takes_along_what_waits_and_keeps_the_order() -> None:
    stream = Stream()
    lines = LogWriter(stream.write)
    with only_handler(lines):
        for number in range(3):
            log_call(replace(RECORD, request_id=f"req_{number}"))
        log_call(replace(FAILED, request_id="req_3"))
        log_call(replace(RECORD, request_id="req_4"))
        logging.getLogger("gateway.runtime").warning("req_5 something else")
        lines.flush()
    assert re.findall(r"(\w+) req_(\d)", stream.getvalue()) == [
        ("INFO", "0"),
        ("INFO", "1"),
        ("INFO", "2"),
        ("WARNING", "3"),
        ("INFO", "4"),
        ("WARNING", "5"),
    ]


class Stuck:
    """A log that nobody reads, until somebody does."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.dropped = 0
        self.text = ""

    def write(self, text: str) -> None:
        self.reads.wait()
        self.text += text

    def drop(self) -> None:
        self.dropped += 1


def test_lines_that_nobody_reads_are_dropped_and_counted_and_saying_them_never_waits() -> None:
    stuck = Stuck()
    lines = LogWriter(stuck.write, stuck.drop)
    lines.write_line(logging.INFO, "0")
    assert eventually(lambda: not lines._waiting)  # the thread is stuck in its write
    for number in range(1, MAX_WAITING + 101):
        lines.write_line(logging.WARNING, str(number))
    assert stuck.dropped == 100
    stuck.reads.set()
    lines.flush()
    assert [line.rsplit(" ", 1)[1] for line in stuck.text.splitlines()] == [
        str(number) for number in range(MAX_WAITING + 1)
    ]


def test_a_flush_gives_a_reader_up_that_does_not_read() -> None:
    stuck = Stuck()
    lines = LogWriter(stuck.write)
    lines.write_line(logging.INFO, "said")
    lines.flush()
    assert not stuck.text
    stuck.reads.set()


async def test_threads_lose_no_line() -> None:
    stream = Stream()
    lines = LogWriter(stream.write)

    def talk(name: int) -> None:
        for number in range(200):
            lines.emit(logging.LogRecord("x", logging.INFO, "", 0, f"{name}:{number}", None, None))

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        lines.write_line(logging.INFO, f"loop:{number}")
        await asyncio.sleep(0)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    lines.flush()
    said = [line.rsplit(" ", 1)[1] for line in stream.getvalue().splitlines()]
    for name in ("loop", "0", "1", "2", "3"):
        assert [one for one in said if one.startswith(f"{name}:")] == [f"{name}:{number}" for number in range(200)]
    assert len(said) == 1000


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_a_reader_that_has_gone_stops_nobody(error: type[Exception]) -> None:
    seen: list[str] = []

    def write(text: str) -> None:
        seen.append(text)
        raise error

    lines = LogWriter(write)
    for _ in range(2):
        lines.write_line(logging.WARNING, "said")
        lines.flush()
    assert len(seen) == 2


def test_a_message_that_cannot_be_printed_is_reported_as_logging_does(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream()
    with only_handler(LogWriter(stream.write)):
        logging.getLogger("x").warning("%d", "no number")
    assert not stream.getvalue()
    assert "Logging error" in capsys.readouterr().err


class Seen(logging.Handler):
    """Somebody's own handler."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_whoever_sets_up_logging_gets_records() -> None:
    seen = Seen()
    for handlers in ([seen], [LogWriter(Stream().write), seen]):
        with only_handler(*handlers):
            log_call(RECORD)
    assert [record.getMessage() for record in seen.records] == [SAID] * 2
    assert (seen.records[0].name, vars(seen.records[0])["fields"]["model"]) == ("gateway.calls", "m")


def nothing(lines: LogWriter) -> None:
    """As ``serve`` sets it up."""


CHANGES: dict[str, tuple[Callable[[LogWriter], object], bool]] = {  # what somebody changed: may records be left out?
    "nothing": (nothing, True),
    "a handler of the logger": (lambda lines: CALLS.addHandler(Seen()), False),
    "a handler in between": (lambda lines: logging.getLogger("gateway").addHandler(Seen()), False),
    "a filter of the logger": (lambda lines: CALLS.addFilter(lambda record: True), False),
    "a filter of the handler": (lambda lines: lines.addFilter(lambda record: True), False),
    "a level of the handler": (lambda lines: lines.setLevel(logging.ERROR), False),
    "a format": (lambda lines: lines.setFormatter(logging.Formatter("%(message)s")), False),
    "no propagation": (lambda lines: setattr(CALLS, "propagate", False), False),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_record_is_left_out_only_if_nobody_would_see_the_difference(case: str) -> None:
    change, alone = CHANGES[case]
    lines = LogWriter(Stream().write)
    with only_handler(lines):
        try:
            change(lines)
            assert lines.is_only_handler_of(CALLS) is alone
        finally:
            CALLS.handlers, CALLS.filters, CALLS.propagate = [], [], True
            logging.getLogger("gateway").handlers = []


def test_a_raised_threshold_holds() -> None:
    stream = Stream()
    lines = LogWriter(stream.write)
    with only_handler(lines):
        logging.getLogger().setLevel(logging.WARNING)
        log_call(RECORD)
        log_call(FAILED)
    lines.flush()
    assert stream.getvalue().count("model=m") == 1


MORE = {  # what else a record may say: how its line ends
    "failed attempts": (
        {"failed_attempts": ("m/1=upstream_error", "m/2=upstream_timeout")},
        " failed=m/1=upstream_error,m/2=upstream_timeout",
    ),
    "an answer cut off": ({"answers_cut": ("length", "thinking")}, " cut=length,thinking"),
    "a key and a cache": ({"key": "ci-runner", "cache": "hit"}, " key=ci-runner cache=hit"),
    "notices": ({"misspelled": ("a (did you mean b?)", "c, d")}, ' notices="a (did you mean b?); c, d"'),
    "a refusal": ({"outcome": "invalid_value", "status": 400, "refusal": "100% wrong: %s"}, ' error="100% wrong: %s"'),
    "an unknown path": (
        {"outcome": "route_not_found", "status": 404, "path": '/a"\n', "refusal": "no"},
        ' path="/a\\"\\n" error=no',
    ),
}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another handler"])
@pytest.mark.parametrize(("changes", "end"), MORE.values(), ids=MORE)
def test_a_line_ends_with_the_further_fields_of_its_call(changes: dict[str, Any], end: str, alone: bool) -> None:
    stream = Stream()
    lines = LogWriter(stream.write)
    with only_handler(lines, *([] if alone else [Seen()])):
        log_call(replace(RECORD, **changes))
    lines.flush()
    assert stream.getvalue().endswith(f" tokens=9+?{end}\n")


MORE_TIMES: dict[str, tuple[dict[str, Any], str]] = {  # what else is known of a call: what follows its ``TIMES``
    "a queue without a wait": ({"queue_wait": 0.0}, " queue_wait=0.0000"),
    "a wait in the queue": ({"queue_wait": 2.00006}, " queue_wait=2.0001"),
    "a whole answer": ({"upstream_first": 0.0111}, ""),
    "a stream": ({"upstream_first": 0.005, "upstream_stream": True}, " upstream_first=0.0050"),
    "a stream without content": ({"upstream_stream": True}, ""),
    "a write that does not wait": ({"client_wait": 0.00099}, ""),
    "a slow client": ({"client_wait": 0.01}, " client_wait=0.0100"),
    "all": (
        {"queue_wait": 0.25, "upstream_first": 0.005, "upstream_stream": True, "client_wait": 0.001},
        " queue_wait=0.2500 upstream_first=0.0050 client_wait=0.0010",
    ),
}


@pytest.mark.parametrize("name", MORE_TIMES)
def test_a_time_that_a_call_does_not_have_is_left_out(name: str) -> None:
    changes, further = MORE_TIMES[name]
    stream = Stream()
    lines = LogWriter(stream.write)
    with only_handler(lines):
        log_call(replace(RECORD, **changes))
    lines.flush()
    assert f" {TIMES}{further} tokens=" in stream.getvalue()


def test_a_line_in_json_has_the_fields_of_the_text() -> None:
    stream = Stream()
    lines = LogWriter(stream.write)
    lines.setFormatter(JsonFormatter())
    with only_handler(lines):
        call = replace(RECORD, failed_attempts=("m/1=upstream_error",), upstream_first=0.01105, client_wait=0.00002)
        log_call(replace(call, answers_cut=("length",), key="ci-runner", cache="miss"))
        logging.getLogger("gateway.runtime").warning("a %s message\nof two lines", "“plain”")
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("gateway.edge").exception("internal error")
    lines.flush()
    said, message, failure = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert datetime.fromisoformat(said.pop("time")).tzinfo is not None
    assert said == {
        "level": "INFO",
        "logger": "gateway.calls",
        "event": "call",
        "request_id": "req_1",
        "endpoint": "chat",
        "model": "m",
        "status": 200,
        "outcome": "ok",
        "target": "m/0",
        "attempts": 1,
        "failed_attempts": ["m/1=upstream_error"],
        "stream": False,
        "seconds": 0.0123,
        "queue_wait": None,
        "upstream_first": 0.0111,
        "upstream": 0.0111,
        "client_wait": 0.0,
        "overhead": 0.0012,
        "prompt_tokens": 9,
        "completion_tokens": None,
        "key": "ci-runner",
        "cache": "miss",
        "cut": ["length"],
    }
    assert (message["level"], message["message"]) == ("WARNING", "a “plain” message\nof two lines")
    assert failure["exception"].endswith("ValueError: no")


CONFIG = "models: {m: {template: chat, targets: [{speaks: scripted, script: says.yaml}]}}"


def test_a_server_that_is_told_to_stop_has_written_every_line(tmp_path: Path) -> None:
    with serving(tmp_path, {"gateway.yaml": CONFIG, "says.yaml": "[hi, {finish: stop}]"}) as process:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        ids = [process.http.post("/v1/chat/completions", json=body).headers["x-request-id"] for _ in range(60)]
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 0
        told = re.findall(
            r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO (\S+) chat model=m status=200 outcome=ok target=m/0 "
            r"attempts=1 seconds=\d+\.\d{4} upstream=\d+\.\d{4} overhead=\d+\.\d{4} tokens=\?\+\?$",
            process.log,
            re.MULTILINE,
        )
        assert told == ids


def test_every_line_of_a_json_log_is_an_object(tmp_path: Path) -> None:
    files = {"gateway.yaml": CONFIG, "says.yaml": "[hi, {finish: stop}]"}
    with serving(tmp_path, files, (*SERVE, "--log-format", "json")) as process:
        assert process.call_model("m") == "hi"
        process.signal(signal.SIGTERM)
        assert process.process.wait(timeout=WAIT_SECONDS) == 0
        lines = [json.loads(line) for line in process.log.splitlines()]
    assert all({"time", "level", "logger"} <= line.keys() for line in lines)
    assert [line.get("event") or line["message"].split()[0] for line in lines] == [
        "serving",
        "call",
        "process",
        "process",
        "process",
    ]
