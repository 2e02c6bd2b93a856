"""``gateway with``: real commands that call a real gateway."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.storage.recordings import open_recording
from tests.cli.command import command
from tests.journeys.process import environment
from tests.support.serving import WAIT_SECONDS, eventually, write_files

CALL = """
import json, os, sys, urllib.request

def call(model="talk", url=os.environ.get("OPENAI_BASE_URL"), **headers):
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    fields = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), fields)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
"""
"""A module of the commands: ``call`` asks a model with the first setting of the environment."""
MODELS = """\
models:
  talk: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""
FILES = {
    "call.py": CALL,
    "gateway.yaml": MODELS,
    "several.yaml": f"""\
server: {{host: 0.0.0.0, admin: "127.0.0.1:1", workers: 2, allowed_hosts: [host]}}
keys: {{file: keys.yaml}}
{MODELS}  judge: {{template: chat, targets: [{{speaks: scripted, script: hello.yaml}}]}}
  slow: {{template: chat, targets: [{{speaks: scripted, script: slow.yaml}}]}}
""",
    "keys.yaml": f'ci: {{sha256: "{"0" * 64}"}}\n',
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "slow.yaml": "[Slow, {pause: 0.5}, {finish: stop}]\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, FILES)
    return tmp_path


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """A test run in the background, or under ``nohup``, ignores signals, and its commands would ignore them too."""
    before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def arguments(*options: str, code: str = "", words: Sequence[str] = ()) -> list[str]:
    """A command line of ``gateway with`` around Python code or other words."""
    python = (sys.executable, "-u", "-c", f"from call import *\n{code}")
    return [sys.executable, "-m", "gateway", "with", *options, "--", *(python if code else ()), *words]


@contextmanager
def started(folder: Path, words: Sequence[str], **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running ``gateway with``, which is killed at the end of the block."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, cwd=folder, env=environment(**env), **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def run(folder: Path, words: Sequence[str], stdin: bytes = b"", **env: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of ``gateway with``."""
    with started(folder, words, **env) as process:
        out, err = process.communicate(stdin, WAIT_SECONDS)
    return process.returncode, out.decode(), err.decode()


def recorded(folder: Path, run: str, columns: str) -> list[tuple[str, ...]]:
    """Columns of the recorded calls of a run."""
    with closing(open_recording(folder / f"{run}.recording.sqlite")) as file:
        return [tuple(row) for row in file.execute(f"SELECT {columns} FROM calls ORDER BY id")]


def test_a_command_gets_the_address_and_its_calls_are_reported(folder: Path) -> None:
    code = """
print(input(), *sys.argv[1:], sep="\\n")
print([os.environ.get(name) for name in ("OPENAI_API_BASE", "OPENAI_API_KEY", "no_proxy", "NO_PROXY")])
scores = open("scores.jsonl", "w")
for number in range(40):
    call(x_gateway_row=f"row-{number}")
    print(json.dumps({"custom_id": f"row-{number}", "score": number % 2}), file=scores)
"""
    placeholders = ["{base_url}", "{chat_url}", "{host}:{port}", "{model}/{key}", '{"stop": {"a":{port}}} {{model}}']
    words = arguments("--run", "monday", "--scores", "scores.jsonl", code=code, words=placeholders)
    status, out, err = run(folder, words, b"line\n", http_proxy="http://192.0.2.1:9", NO_PROXY="example.org")
    assert status == 0, err
    url = out.splitlines()[1]
    port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/v1", url)
    assert port is not None
    direct = "example.org,127.0.0.1,localhost"
    assert out.splitlines() == [
        "line",
        url,
        f"{url}/chat/completions",
        f"127.0.0.1:{port[1]}",
        "talk/none",
        f'{{"stop": {{"a":{port[1]}}}}} {{{{model}}}}',
        str([url, "none", direct, direct]),
    ]
    assert err.splitlines() == [
        f"note: run monday: {url}, monday.recording.sqlite",
        "class  rows  share",
        "whole  40    100.0%",
        "all    40    100.0%",
        "",
        "score (scores.jsonl): 0.500 (0.350 to 0.650) over all 40 rows",
    ]
    assert recorded(folder, "monday", "run, row, mode, outcome") == [
        ("monday", f"row-{number}", "full", "ok") for number in range(40)
    ]
    assert command(folder, "report", "monday").stdout.decode().splitlines() == err.splitlines()[1:4]
    found = command(folder, "why", "monday", "monday").stdout.decode()
    assert found.startswith("40 rows in both runs, 0 with another answer")


def test_calls_may_name_another_run_and_models_are_reported_apart(folder: Path) -> None:
    code = """
base = sys.argv[1]
call("talk", base), call("judge", base, x_gateway_run="other"), call("judge", base.replace("/v1", "/run/third/v1"))
try:
    call("tolk", base)
except Exception as error:
    print(error.code, "OPENAI_BASE_URL" in os.environ)
sys.exit(9)
"""
    words = arguments("--run", "a", "--no-env", "--config", "several.yaml", "--model", "talk", code=code)
    status, out, err = run(folder, [*words, "{base_url}"])
    assert (status, out) == (9, "404 False\n"), err
    assert recorded(folder, "a", "model, run, key") == [
        ("talk", "a", ""),
        ("judge", "other", ""),
        ("judge", "third", ""),
    ]
    assert err.splitlines()[1:] == [
        "class  rows  share",
        "whole  3     100.0%",
        "all    3     100.0%",
        "",
        "model  whole",
        "judge  2",
        "talk   1",
        "note: 1 request without an answer: model_not_found (1)",
    ]


ENDS = {
    "no call": (["true"], 3, "no call arrived; give true the address with {base_url} in its arguments, or"),
    "no call of a harness": (
        ["sh", "-c", "exit 0", "evalscope.py"],
        3,
        "no call arrived; give evalscope the address with --api-url {base_url}; the",
    ),
    "a failure": (["sh", "-c", "exit 7"], 7, "no call arrived; give sh the address"),
    "a signal": (["sh", "-c", "kill -9 $$"], 137, "no call arrived; give sh the address"),
    "no command": (["missing"], 127, "missing: cannot be started: No such file or directory"),
    "no program": (["./call.py"], 126, "./call.py: cannot be started: Permission denied"),
    "an unknown model": (["python", "call('tolk')"], 3, "no call was answered: model_not_found (1); give python"),
    "an unknown path": (
        ["python", "call(url=url + '/v2')"],
        3,
        "no call was answered: route_not_found (1); give python",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_exit_code_is_that_of_the_command_or_3_without_an_answer(case: str, folder: Path) -> None:
    words, code, message = ENDS[case]
    if words[0] == "python":
        words = [
            sys.executable,
            "-c",
            f"from call import *\nurl = os.environ['OPENAI_BASE_URL'][:-3]\ntry: {words[1]}\nexcept OSError: pass",
        ]
    status, out, err = run(folder, arguments(words=words))
    assert (status, out) == (code, ""), err
    assert f"error: {message}" in err
    assert list(folder.glob("*.sqlite*")) == []


REFUSED = {
    "a run that exists": (
        "--run old -- true",
        "old.recording.sqlite exists; choose another name with --run, or remove",
    ),
    "a bad name": ("--run a/b -- true", "--run a/b: use 1 to 64 ASCII letters, digits and"),
    "an unknown model": ("--model tolk -- true", '--model tolk: no such model (did you mean "talk"?); gateway models'),
    "several models": ("--config several.yaml -- a model={model}", "name one with --model: talk, judge, slow"),
    "no command": ("--run a", "missing argument"),
    "a wrong configuration": ("--config call.py -- true", "call.py"),
    "scores of two runs": ("--scores a --scores b -- true", "too many scores: give each run one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_command_line_is_refused_before_the_command_starts(case: str, folder: Path) -> None:
    (folder / "old.recording.sqlite").touch()
    words, message = REFUSED[case]
    ended = command(folder, "with", *words.split())
    assert ended.returncode == (3 if "wrong" in case else 2)
    assert message in ended.stderr.decode()


def test_a_harness_gets_the_same_port_in_each_run_if_it_is_free(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = run(folder, arguments("--run", "a", "--port", str(port), code="call()"))
        assert (status, f"127.0.0.1:{port}" in err, "another port with --port" in err) == (3, True, True), err
    for name in ("a", "b"):
        status, _, err = run(folder, arguments("--run", name, "--port", str(port), code="call()", words=["{port}"]))
        assert (status, f"http://127.0.0.1:{port}/v1" in err) == (0, True), err


def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    ended = command(Path("/proc"), "with", "--run", "a", "--config", str(folder / "gateway.yaml"), "--", "true")
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"error: a.recording.sqlite: "), ended.stderr
    assert ended.stderr.endswith(b"; change to a folder that you may write\n")


def test_what_this_process_ignores_the_command_ignores_and_its_words_are_kept(folder: Path) -> None:
    """``nohup`` ignores SIGHUP. The words of the command may contain options and a second ``--``."""
    code = "import signal; print(signal.getsignal(signal.SIGHUP).name, *sys.argv[1:])"
    words = [*arguments("--run", "a", code=code, words=["--run", "b", "--", "{c}"])]
    words.remove("--")  # the first word that is no option begins the command
    status, out, err = run(folder, ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *words])
    assert (status, out) == (3, "SIG_IGN --run b -- {c}\n"), err


def test_the_calls_of_a_command_that_has_ended_are_answered(folder: Path) -> None:
    late = "call('slow'); open('late', 'w').write('answered')"
    code = f"""
import subprocess, time
subprocess.Popen([sys.executable, "-c", '''from call import *; {late.replace("'", '"')}'''])
while b"in_flight{{endpoint=\\"chat\\",model=\\"slow\\"}} 1" not in urllib.request.urlopen(sys.argv[1]).read():
    time.sleep(0.01)
"""
    words = arguments("--run", "a", "--config", "several.yaml", code=code, words=["http://{host}:{port}/metrics"])
    status, _, err = run(folder, words)
    assert status == 0, err
    assert recorded(folder, "a", "model, outcome") == [("slow", "ok")]
    assert eventually(lambda: (folder / "late").exists())


GROUP = """
import signal, subprocess, time
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, lambda number, frame: os.write(1, f"{sys.argv[1]} {number}\\n".encode()))
if sys.argv[1] == "parent":
    subprocess.Popen([sys.executable, "-u", "-c", sys.argv[2], "child", ""])
os.write(1, f"{sys.argv[1]} ready\\n".encode())
while not os.path.exists("end"):
    time.sleep(0.01)
"""


def test_signals_reach_the_group_of_the_command_which_ends_first(folder: Path) -> None:
    with started(folder, arguments(code=GROUP, words=["parent", f"from call import *\n{GROUP}"])) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert sorted(lines) == [b"child ready\n", b"parent ready\n"]
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
                lines = [process.stdout.readline(), process.stdout.readline()]
                assert sorted(lines) == [f"child {number}\n".encode(), f"parent {number}\n".encode()]
            assert process.poll() is None
        finally:
            (folder / "end").touch()
        assert process.wait(WAIT_SECONDS) == 3


class Terminal:
    """A terminal with a shell that controls jobs."""

    def __init__(self, folder: Path) -> None:
        self._own, other = os.openpty()
        self._shown = ""

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            env=environment(PS1="$ "),
            start_new_session=True,
            preexec_fn=take_terminal,
            stdin=other,
            stdout=other,
            stderr=other,
        )
        os.close(other)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def shows(self, text: str) -> None:
        """Read until the terminal shows a text, and drop what is before it."""
        while text not in self._shown:
            assert select.select([self._own], [], [], WAIT_SECONDS)[0], self._shown
            self._shown += os.read(self._own, 4096).decode()
        self._shown = self._shown.partition(text)[2]

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self._own)


def test_a_command_can_use_the_terminal(folder: Path) -> None:
    (folder / "talk.py").write_text(f"{CALL}\nfor line in sys.stdin: print('read', line.strip(), call())\n")
    with closing(Terminal(folder)) as terminal:
        terminal.type(f"{sys.executable} -m gateway with --run a -- {sys.executable} -u talk.py\n")
        terminal.shows("a.recording.sqlite")
        terminal.type("one\n")
        terminal.shows("read one Hello")
        terminal.type("\x1a")  # Ctrl-Z
        terminal.shows("Stopped")
        terminal.type("fg\n")
        terminal.shows("talk.py")
        terminal.type("two\n")
        terminal.shows("read two Hello")
        terminal.type("\x03")  # Ctrl-C
        terminal.shows("KeyboardInterrupt")
        terminal.shows("all    2")
        terminal.type("echo code=$?\n")
        terminal.shows("code=130")
        terminal.type(f"sh -c '{sys.executable} -m gateway with --run b -- true; read line; echo got $line'\n")
        terminal.shows("no call arrived")
        terminal.type("it\n")  # the script has the terminal again
        terminal.shows("got it")


def test_the_calls_of_a_command_are_not_mixed_with_those_of_a_bulk_run(folder: Path) -> None:
    assert run(folder, arguments("--run", "a", code="call()"))[0] == 0
    (folder / "data.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    ended = command(folder, "run", "data.jsonl", "--model", "talk", "--out", "a.jsonl")
    message = b"error: a.recording.sqlite has the calls of another run; choose another --out\n"
    assert (ended.returncode, ended.stderr) == (2, message)
    assert len(recorded(folder, "a", "id")) == 1
    assert not (folder / "a.jsonl").exists()


def test_scores_from_before_the_command_do_not_count(folder: Path) -> None:
    code = 'call(x_gateway_row="row-0")\nos.environ.get("WRITE") and open("old.jsonl", "a").write("\\n")'
    (folder / "old.jsonl").write_text('{"custom_id": "row-0", "score": 1}')
    os.utime(folder / "old.jsonl", (1000, 1000))
    status, _, err = run(folder, arguments("--run", "old", "--scores", "old.jsonl", code=code))
    assert (status, err.splitlines()[-1]) == (2, "error: old.jsonl: the command has not written this file")
    assert err.splitlines()[-2] == "all    1     100.0%", "the report without the scores"
    status, _, err = run(folder, arguments("--run", "new", "--scores", "old.jsonl", code=code), WRITE="1")
    assert (status, err.splitlines()[-1][:24]) == (0, "score (old.jsonl): 1.000")
