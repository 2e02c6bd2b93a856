"""Edits of the configuration while the gateway serves, its start and its end."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.journeys import reload_load
from tests.journeys.process import Process, run, serving
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, write_files

GOOD = """\
models:
  first:
    template: mine
    targets: [{speaks: scripted, script: first.yaml}]
  slow:
    template: chat
    targets: [{speaks: scripted, script: slow.yaml}]
"""

TEMPLATE = """\
kind: meta
round:
  - {role: HUMAN, begin: "H: ", end: "\\n"}
  - {role: BOT, begin: "B: ", end: "\\n", generate: true}
examples:
  - messages: [{role: user, content: hi}]
    prompt: "H: hi\\nB: "
"""

FILES = {
    "gateway.yaml": GOOD,
    "meta_templates/mine.yaml": TEMPLATE,
    "first.yaml": "[the first, {finish: stop}]\n",
    "second.yaml": "[the second, {finish: stop}]\n",
    "slow.yaml": "[begun, {pause: 0.8}, ' and ended', {finish: stop}]\n",
}

SECOND = GOOD.replace("first.yaml", "second.yaml")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("reload"), FILES) as process:
        yield process


@pytest.fixture
def process(running: Process) -> Iterator[Process]:
    """The process; its first configuration is restored after each test."""
    assert running.call_model("first") == "the first"
    yield running
    for name, text in FILES.items():
        running.write(name, text)
    running.reload("ok")


def test_sighup_loads_an_edit(process: Process) -> None:
    process.write(
        "gateway.yaml", SECOND + "  new: {template: chat, targets: [{speaks: scripted, script: first.yaml}]}\n"
    )
    process.reload("ok")
    assert process.call_model("first") == "the second"
    assert process.models() == ["first", "slow", "new"]


def test_a_changed_file_is_reloaded_automatically(process: Process) -> None:
    process.write("gateway.yaml", SECOND)
    assert eventually(lambda: process.call_model("first") == "the second"), process.log


BROKEN: dict[str, tuple[str, str, str]] = {
    # file, broken text, part of the log
    "no YAML": ("gateway.yaml", GOOD + "  bad: [\n", "gateway.yaml:"),
    "an unknown key": ("gateway.yaml", GOOD.replace("template: mine", "templat: mine"), "gateway.yaml:3"),
    "no such template": ("gateway.yaml", GOOD.replace("mine", "mein"), "gateway.yaml:3"),
    "a missing variable": (
        "gateway.yaml",
        GOOD + '  paid: {template: chat, targets: [{speaks: chat, url: "http://127.0.0.1:1/v1", key: "env:NO_KEY"}]}\n',
        "gateway.yaml:8",
    ),
    "a missing script": ("gateway.yaml", GOOD.replace("first.yaml", "nowhere.yaml"), "nowhere.yaml"),
    "a failing example": (
        "meta_templates/mine.yaml",
        TEMPLATE.replace('begin: "B: "', 'begin: "A: "'),
        "meta_templates/mine.yaml:",
    ),
    "a template without a voice": (
        "meta_templates/mine.yaml",
        TEMPLATE.replace(", generate: true", ""),
        "meta_templates/mine.yaml:",
    ),
    "an empty file": ("gateway.yaml", "", "gateway.yaml"),
    "a script that is none": ("first.yaml", "{a: 1}\n", "first.yaml"),
    "a script with a step that is none": ("first.yaml", "[5]\n", "first.yaml"),
}


@pytest.mark.parametrize(("name", "text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_edit_keeps_the_old_configuration(process: Process, name: str, text: str, said: str) -> None:
    logged = len(process.log)
    process.write(name, text)
    process.reload("error")
    assert process.call_model("first") == "the first"
    assert process.models() == ["first", "slow"]
    assert process.http.get("/health/ready").status_code == 200
    complaint = process.log[logged:]
    assert "the old configuration keeps serving" in complaint
    assert said in complaint or "Traceback" in complaint


def test_every_problem_of_a_broken_edit_is_logged_at_once(process: Process) -> None:
    logged = len(process.log)
    process.write("gateway.yaml", GOOD.replace("template: mine", "templat: mine").replace("chat", "caht"))
    process.reload("error")
    complaint = process.log[logged:]
    assert "gateway.yaml:3" in complaint
    assert "gateway.yaml:6" in complaint


LATE: dict[str, tuple[str, str]] = {  # setting under server, part of the log
    "what waits": (
        "host: 127.0.0.2, drain: 3s",
        "restart the gateway to apply the change of server.host, server.drain",
    ),
    "what does not": ("max_body: 1KiB, max_in_flight: 7, cors: {origins: ['*']}", ""),
}


@pytest.mark.parametrize(("server", "said"), LATE.values(), ids=LATE)
def test_only_settings_that_need_a_restart_are_logged(process: Process, server: str, said: str) -> None:
    logged = len(process.log)
    process.write("gateway.yaml", f"server: {{{server}}}\n{GOOD}")
    process.reload("ok")
    complaint = process.log[logged:]
    assert said in complaint
    assert ("restart the gateway to apply" in complaint) == bool(said)


def test_a_smaller_body_limit_applies_at_once(process: Process) -> None:
    process.write("gateway.yaml", f"server: {{max_body: 40}}\n{GOOD}")
    process.reload("ok")
    assert process.call_model("first") == "body_too_large"


def test_a_removed_model_is_not_found(process: Process) -> None:
    process.write("gateway.yaml", GOOD[: GOOD.index("  slow:")])
    process.reload("ok")
    assert process.call_model("slow") == "model_not_found"
    assert process.call_model("first") == "the first"


class Streaming:
    """A stream of the slow model, read in a thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.text = ""
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.begun.wait(WAIT_SECONDS)

    def _read(self) -> None:
        body = {"model": "slow", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        with self._process.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            for piece in answer.iter_text():
                self.text += piece
                self.begun.set()

    def end(self) -> str:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.text


def test_a_running_stream_keeps_the_stack_it_began_with(process: Process) -> None:
    stream = Streaming(process)
    process.write("slow.yaml", "[something else, {finish: stop}]\n")
    process.reload("ok")
    assert process.call_model("slow") == "something else"
    process.write("gateway.yaml", GOOD[: GOOD.index("  slow:")])
    process.reload("ok")
    text = stream.end()
    assert "begun" in text
    assert " and ended" in text
    assert "something else" not in text
    assert text.endswith("data: [DONE]\n\n")


# ---------------------------------------------------------------- the end, and beginnings that fail


def test_no_call_fails_while_the_configuration_is_reloaded_again_and_again(tmp_path: Path) -> None:
    with serving(tmp_path, reload_load.FILES) as process:
        outcome = reload_load.reload_under_load(process, 20)
        assert outcome.failed == 0, outcome.answers
        assert set(outcome.answers) == {"even", "odd"}
        assert outcome.refused == 2


def test_sigterm_finishes_a_stream_and_exits_with_0(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        stream = Streaming(process)
        process.signal(signal.SIGTERM)
        assert eventually(lambda: not process.accepts())
        text = stream.end()
        assert " and ended" in text
        assert text.endswith("data: [DONE]\n\n")
        assert process.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in process.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, FILES) as process:
        assert process.call_model("first") == "the first"
        process.signal(number)
        assert process.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in process.log


def test_a_busy_port_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(tmp_path, "serve", "--host", "127.0.0.1", "--port", str(port))
    assert ended.returncode == 3
    assert ended.stdout == b""
    assert ended.stderr.decode().splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use); choose another port: server.port in "
        "gateway.yaml, --port 9000, or PORT=9000 make run"
    ]


def test_a_broken_configuration_does_not_start(tmp_path: Path) -> None:
    broken = GOOD.replace("template: mine", "templat: mine").replace("chat", "caht")
    write_files(tmp_path, {**FILES, "gateway.yaml": broken})
    ended = run(tmp_path, "serve")
    assert ended.returncode == 3
    lines = ended.stderr.decode().splitlines()
    assert lines[-1] == f"{len(lines) - 1} problems"
    assert any(line.startswith("gateway.yaml:3 ") for line in lines)
    assert any(line.startswith("gateway.yaml:6 ") for line in lines)


def test_a_broken_script_does_not_start(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "first.yaml": "{a: 1}\n"})
    ended = run(tmp_path, "serve", "--port", "0")
    assert ended.returncode == 3
    assert b"first.yaml" in ended.stderr


BROKEN_FILES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    # a model's settings, other files, and the place of the problem
    "an empty model folder": (
        "targets: [{speaks: embedded, path: empty}]",
        {"empty/.keep": ""},
        ["models.m.targets[0].path: "],
    ),
    "an option that no embedded model has": (
        f"targets: [{{speaks: embedded, path: {ROOT}/demo/model, options: {{token_dealy: 1}}}}]",
        {},
        ['models.m.targets[0].options: "token_dealy" is not an option'],
    ),
    "a script that is no list": (
        "targets: [{speaks: scripted, script: s.yaml}]",
        {"s.yaml": "{a: 1}"},
        ["models.m.targets[0].script: "],
    ),
    "a script with an unknown step": (
        "targets: [{speaks: scripted, script: s.yaml}]",
        {"s.yaml": "[{say: a}]"},
        ["models.m.targets[0].script: "],
    ),
    "a script with an unknown error": (
        "targets: [{speaks: scripted, script: s.yaml}]",
        {"s.yaml": "[{error: tired}]"},
        ["models.m.targets[0].script: "],
    ),
    "a tokenizer that is no JSON": (
        "tokenizer: t.json, targets: [{speaks: scripted, script: first.yaml}]",
        {"t.json": "nonsense"},
        ["models.m.tokenizer: "],
    ),
    "everything at once": (
        "tokenizer: t.json, targets: [{speaks: scripted, script: s.yaml}, {speaks: embedded, path: empty}]",
        {"t.json": "nonsense", "s.yaml": "{a: 1}", "empty/.keep": ""},
        ["models.m.targets[0].script: ", "models.m.targets[1].path: ", "models.m.tokenizer: "],
    ),
}


@pytest.mark.parametrize(
    ("verb", "name"), [*(("check", name) for name in BROKEN_FILES), ("serve", "everything at once")]
)
def test_check_refuses_what_serve_refuses(tmp_path: Path, verb: str, name: str) -> None:
    model, files, places = BROKEN_FILES[name]
    config = f"{GOOD}  m: {{template: mine, {model}}}\n  n: {{template: mine, {model}}}\n"
    write_files(tmp_path, {**FILES, **files, "gateway.yaml": config})
    # ``serve`` needs a process of its own, because it sets up the logging.
    ended = command(tmp_path, verb) if verb == "check" else run(tmp_path, verb, "--port", "0")
    lines = ended.stderr.decode().splitlines()
    assert ended.returncode == (1 if verb == "check" else 3)
    expected = [f"gateway.yaml:8 {place}" for place in places]
    expected += [f"gateway.yaml:9 {place.replace('models.m.', 'models.n.')}" for place in places]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=False)] == expected
    assert lines[-1] == f"{len(expected)} problem{'s' if len(expected) > 1 else ''}"


def test_a_problem_of_an_unused_template_does_not_hide_that_of_a_model(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "first.yaml": "{a: 1}\n", "meta_templates/spare.yaml": "kind: meta\nround: 5\n"})
    complaint = command(tmp_path, "check").stderr.decode()
    assert "meta_templates/spare.yaml:2 round" in complaint
    assert "models.first.targets[0].script" in complaint


def test_check_lists_every_problem_at_once(tmp_path: Path) -> None:
    config = GOOD.replace("template: mine", "templat: mine").replace("chat", "caht") + "policy: 5\n"
    write_files(
        tmp_path,
        {
            **FILES,
            "gateway.yaml": config,
            "meta_templates/spare.yaml": TEMPLATE.replace("B: ", "A: ", 1),
            "policies/odd.yaml": "delivery: {attempts: many}\n",
        },
    )
    ended = command(tmp_path, "check")
    # The output of a failed example is indented below its problem.
    lines = [line for line in ended.stderr.decode().splitlines() if not line.startswith(" ")]
    assert ended.returncode == 1
    assert ended.stdout == b""
    assert lines[-1] == f"{len(lines) - 1} problems"
    for place in (
        "gateway.yaml:3 ",
        "gateway.yaml:6 ",
        "gateway.yaml:8 ",
        "meta_templates/spare.yaml:7 ",
        "policies/odd.yaml:1 ",
    ):
        assert any(line.startswith(place) for line in lines), (place, lines)
