"""Makes one mistake in a working project, and returns what the person who made it sees.

The project below is that of a newcomer: the demo's model, a model behind an engine, and a chat server.
A mistake changes its files and runs a command, or sends a request to the gateway that serves ``SERVED``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from starlette.types import Receive, Scope, Send

from tests.cli.command import command
from tests.support.serving import ROOT, Gateway, gateway, run_uvicorn
from tests.support.upstream.server import FaultyUpstream, refused_url

MISTAKES = Path(__file__).with_name("mistakes.yaml")
RIGHT_KEY = "gk_the-right-key"
GUEST_DIGEST = hashlib.sha256(b"gk_a-guest").hexdigest()
OLD_DIGEST = hashlib.sha256(b"gk_an-old-key").hexdigest()

PROJECT = {
    "gateway.yaml": """\
server: {host: 127.0.0.1, port: 8000}
models:
  demo:
    template: sft-demo
    policy: eval
    targets:
      - {speaks: embedded, path: MODEL}
  my-sft-7b:
    template: my-family
    policy: mine
    targets:
      - {speaks: completions, url: "http://127.0.0.1:8101/v1", model: my-sft-7b, engine: vllm}
  my-chat:
    template: chat
    targets:
      - {speaks: chat, url: "http://127.0.0.1:8102/v1", model: my-chat}
""",
    "meta_templates/my-family.yaml": """\
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\\n", generate: true}
examples:
  - messages: [{role: user, content: "1+1=?"}]
    prompt: "<HUMAN>: 1+1=?<eoh>\\n<BOT>: "
""",
    "policies/mine.yaml": """\
params:
  default: {temperature: 0}
  clamp: {max_tokens: 512}
delivery:
  timeout: {total: 60s}
""",
    "prompts/sums.yaml": """\
input_columns: [question]
output_column: answer
prompt_template:
  template:
    round:
      - {role: HUMAN, prompt: "{question}"}
      - {role: BOT, prompt: "{answer}"}
""",
    "questions.jsonl": """\
{"messages": [{"role": "user", "content": "12+30=?"}], "max_tokens": 4}
{"messages": [{"role": "user", "content": "7+8=?"}], "max_tokens": 4}
""",
}
"""The newcomer's files, in which ``gateway check`` finds no problem. ``MODEL``: the folder of the demo's model."""

SERVED = """\
keys: {{file: keys.yaml}}
models:
  demo: {{template: sft-demo, targets: [{{speaks: embedded, path: "{model}", options: {{max_model_len: 64}}}}]}}
  my-sft-7b: {{template: my-family, policy: strict, targets: [{{speaks: completions, url: "{ok}"}}]}}
  my-chat: {{template: chat, targets: [{{speaks: chat, url: "{ok}"}}]}}
  down: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{down}"}}]}}
  out-of-memory: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{broken}"}}]}}
  hangs: {{template: my-family, policy: impatient, targets: [{{speaks: completions, url: "{hangs}"}}]}}
  wrong-path: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{lost}"}}]}}
  wrong-model: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{forgotten}"}}]}}
  wrong-key: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{locked}"}}]}}
  web-page: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{page}"}}]}}
  login-page: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{login}"}}]}}
  moved: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{moved}"}}]}}
  ignores: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{ignores}", engine: vllm}}]}}
  cut-off: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{cut}"}}]}}
  https-on-http: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "{secure}"}}]}}
  no-such-host: {{template: my-family, policy: once, targets: [{{speaks: completions, url: "http://gpu-node.invalid:8101/v1"}}]}}
  tools: {{template: chatml-tools, policy: mine, targets: [{{speaks: completions, url: "{ok}", engine: vllm}}]}}
  production: {{template: my-family, policy: production, targets: [{{speaks: completions, url: "{ok}", engine: vllm}}]}}
  chat-ignores: {{template: chat, policy: once, targets: [{{speaks: chat, url: "{ok}", engine: vllm}}]}}
  one-a-minute: {{template: my-family, policy: one-a-minute, targets: [{{speaks: completions, url: "{ok}"}}]}}
"""
"""The served project, with a model for each way in which a target fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One entry of ``mistakes.yaml``."""

    area: str
    mistake: str
    shows: str = ""
    """What the person sees, with numbers and addresses masked."""
    rating: int = 1
    """2: I know what to do now. 1: I know where it is. 0: I know neither."""
    change: Mapping[str, str] = field(default_factory=dict)
    """Text in ``gateway.yaml`` and its replacement."""
    files: Mapping[str, str | None] = field(default_factory=dict)
    """Files that are added or replaced; None: removed."""
    env: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()
    """Commands that succeed, and are not shown."""
    run: str = ""
    """The command; without it the entry has a request. ``SERVED`` is the address of the running gateway."""
    input: str = ""
    """The standard input of the command."""
    request: str = ""
    """Method and path; without a method POST."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """A JSON value, or the text that is sent."""
    times: int = 1
    """How often the request is sent. The last answer is shown."""


def read_mistakes() -> list[Mistake]:
    """All mistakes, in the order of the file."""
    areas: dict[str, list[dict[str, Any]]] = yaml.safe_load(MISTAKES.read_text(encoding="utf-8"))
    return [Mistake(area=area, **entry) for area, entries in areas.items() for entry in entries]


@contextmanager
def serving(folder: Path) -> Iterator[Gateway]:
    """Serve the project from an empty folder, with healthy and failing targets."""
    _write(folder, PROJECT)
    (folder / "policies/strict.yaml").write_text(
        "params: {unknown: reject}\nmarkers: {token_like: reject}\n", encoding="utf-8"
    )
    once, patient = "retry: {attempts: 1}", "timeout: {connect: 30s, first_token: 60s, idle: 60s, total: 90s}"
    (folder / "policies/once.yaml").write_text(f"delivery: {{{once}, {patient}}}\n", encoding="utf-8")
    (folder / "policies/one-a-minute.yaml").write_text("limits: {requests_per_minute: 1}\n", encoding="utf-8")
    short = "timeout: {connect: 1s, first_token: 1s, idle: 1s, total: 1s}"
    (folder / "policies/impatient.yaml").write_text(f"delivery: {{{once}, {short}}}\n", encoding="utf-8")
    digest = hashlib.sha256(RIGHT_KEY.encode()).hexdigest()
    keys = f'me: {{sha256: "{digest}"}}\nold: {{sha256: "{OLD_DIGEST}", expires: 2020-01-01}}\n'
    keys += f'guest: {{sha256: "{GUEST_DIGEST}", models: [demo]}}\n'
    (folder / "keys.yaml").write_text(keys, encoding="utf-8")
    with FaultyUpstream() as up, run_uvicorn(_no_app) as plain:
        config = SERVED.format(
            model=ROOT / "demo/model",
            ok=up.url("ok"),
            down=refused_url(),
            broken=up.url("500"),
            hangs=up.url("hang-headers"),
            lost=up.url("404-route"),
            locked=up.url("401"),
            page=up.url("html-502"),
            login=up.url("200-html"),
            moved=up.url("redirect-307"),
            cut=up.url("half-body"),
            ignores=up.url("scores", fault="no-list"),
            forgotten=up.url("404"),
            secure=f"https://127.0.0.1:{plain}/v1",
        )
        with gateway(folder, config) as served:
            yield served


async def _no_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve nothing: the requests to this server are not HTTP. Only its start and end are confirmed."""
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def what_is_shown(mistake: Mistake, folder: Path, served: Gateway) -> str:
    """Make the mistake in an empty folder, or over HTTP, and return the masked output."""
    shown = _answer(mistake, served) if mistake.request else _output(mistake, folder, served)
    return masked(shown, folder)


def _output(mistake: Mistake, folder: Path, served: Gateway) -> str:
    """The output of the command: standard error, the exit code, and standard output if there is any."""
    changed = PROJECT["gateway.yaml"]
    for before, after in mistake.change.items():
        assert before in changed, before
        changed = changed.replace(before, after)
    _write(folder, {**PROJECT, "gateway.yaml": changed, **mistake.files})
    for line in mistake.before:
        earlier = command(folder, *_arguments(line, served), terminal=False)
        assert earlier.returncode == 0, earlier.stderr.decode()
    stdin, given = mistake.input.encode(), {"COLUMNS": "120", **mistake.env}
    done = command(folder, *_arguments(mistake.run, served), stdin=stdin, terminal=False, together=False, **given)
    return "".join(
        [done.stdout.decode(), done.stderr.decode(errors="backslashreplace"), f"(exit code {done.returncode})"]
    )


def _arguments(line: str, served: Gateway) -> list[str]:
    words = shlex.split(line.replace("MODEL", str(ROOT / "demo/model")).replace("SERVED", served.root))
    assert words[0] == "gateway"
    return words[1:]


def _answer(mistake: Mistake, served: Gateway) -> str:
    """The status of the answer, and the error's code, field and message."""
    method, _, path = mistake.request.rpartition(" ")
    content = mistake.body if isinstance(mistake.body, str) else json.dumps(mistake.body)
    headers = {"content-type": "application/json", "authorization": f"Bearer {RIGHT_KEY}", **mistake.headers}
    headers = {name: value for name, value in headers.items() if value}
    sent = None if mistake.body is None else content.encode()
    for _ in range(mistake.times):
        reply = served.http.request(method or "POST", path, content=sent, headers=headers)
    notice = reply.headers.get("x-gateway-notice")
    if reply.status_code == 200:
        return f"200\nx-gateway-notice: {notice}"
    error = reply.json()["error"]
    field = f" ({error['param']})" if error["param"] else ""
    return f"{reply.status_code} {error['code']}{field}\n{error['message']}"


def _write(folder: Path, files: Mapping[str, str | None]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text.replace("MODEL", str(ROOT / "demo/model")), encoding="utf-8")


MASKS = (
    (r"req_[0-9a-f]{8,}", "req_…"),
    (r"127\.0\.0\.1:(?!8000|8101|8102|9000)\d+", "127.0.0.1:PORT"),
    (r"\b\d+(\.\d+)? ?ms\b", "N ms"),
    (r"(?<=within )[\d.]+ ?s\b", "N s"),
    (r"(?<=retry in )\d+ s\b", "N s"),
    (r"[0-9a-f]{64}", "SHA256"),
    (r"gk_\w+-?[\w-]*", "gk_…"),
)
"""Regular expressions of what differs from run to run, and its replacements."""


def masked(text: str, folder: Path) -> str:
    """The text without the values that differ from run to run."""
    text = text.replace(str(ROOT / "demo/model"), "MODEL").replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return "\n".join([line.rstrip() for line in text.strip().splitlines()])
