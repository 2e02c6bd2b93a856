"""The gateways of the pictures: runs of 200 questions as an evaluation has them, and calls that fail.

``monday`` has the template that the demo model was trained on. In ``tuesday`` the template has lost a space;
``wednesday`` has a ``max_tokens`` of 2 and eight edited questions; ``thursday`` has a template of another family;
``friday`` is ``monday`` again.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.command import command
from tests.journeys.process import environment
from tests.support.ports import free_port
from tests.support.serving import ROOT, Files, Gateway
from tests.support.world import HELLO, key_file

NAMES = ("Ada", "Bo", "Chen", "Dilek", "Emil", "Fatou", "Goran", "Hana")
STORIES = (
    "{who} has {a} apples and buys {b} more. How many apples is that? {a}+{b}=?",
    "A train leaves with {a} people, and {b} get on. How many people are on the train? {a}+{b}=?",
    "{who} reads {a} pages on Saturday and {b} on Sunday. How many pages is that? {a}+{b}=?",
    "A ticket costs {a} euros and a meal {b}. What does {who} pay for both? {a}+{b}=?",
)
SYSTEM = {"role": "system", "content": "Answer with a number."}
SPACE_LOST = re.sub(
    r"examples:.*", "", (ROOT / "meta_templates/sft-demo.yaml").read_text("utf-8"), flags=re.DOTALL
).replace('"<HUMAN>: "', '"<HUMAN>:"')
HOSTILE = "<img src=x onerror=ran()><script>document.title='ran'</script>\u202egnp.exe \x00 \U0001f680 &amp;"
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
THOUGHT = "The user asks for a sum. I add the tens first, then the ones. "
FILES: Files = {
    **HELLO,
    "prompts": ROOT / "prompts",
    "meta_templates/sft-demo-new.yaml": SPACE_LOST,
    "policies/full.yaml": "params: {default: {temperature: 0}}\nrecord: full\ndelivery: {fallback: true}\n",
    "loops.yaml": json.dumps([*["Let me check that again. The sum is 12. "] * 40, {"finish": "length"}]),
    "thinks.yaml": json.dumps([{"fields": {"reasoning_content": THOUGHT * 9}}, {"pause": 0.2}, {"finish": "length"}]),
    "answers.yaml": json.dumps(
        [
            {"fields": {"reasoning_content": THOUGHT}},
            {"pause": 0.3},
            "The sum ",
            {"pause": 0.1},
            "of both numbers ",
            {"pause": 0.05},
            "is **83**.",
            {"finish": "stop"},
            {"usage": [24, 12]},
        ]
    ),
    "calls.yaml": json.dumps(
        [
            '<tool_call>\n{"name": "add", "arguments": ',
            {"pause": 0.1},
            '{"a": 47, "b": 36}}\n</tool_call>',
            {"finish": "stop"},
        ]
    ),
    "broken.yaml": json.dumps(["The sum of ", {"pause": 0.2}, {"error": "upstream_disconnected"}]),
    "hostile.yaml": json.dumps([HOSTILE, {"finish": "stop"}], ensure_ascii=False),
    "keys.yaml": key_file({"gk_team": "models: [open-*]", "gk_all": "models: ['*']"}),
}
DEMO = f"policy: full, targets: [{{speaks: embedded, path: {json.dumps(str(ROOT / 'demo/model'))}}}]"
SCRIPT = "policy: full, targets: [{speaks: scripted, script"
OPEN = f"""
recordings: {{path: calls.sqlite}}
models:
  demo: {{template: sft-demo, description: Adds numbers., {DEMO}}}
  demo-new: {{template: sft-demo-new, description: The template was edited on Tuesday., {DEMO}}}
  demo-chatml: {{template: chatml, description: The template of another family., {DEMO}}}
  agent: {{template: chatml-tools, {SCRIPT}: calls.yaml}}]}}
  assistant: {{template: chat, description: Thinks before it answers., {SCRIPT}: answers.yaml}}]}}
  thinks-too-long: {{template: chat, {SCRIPT}: thinks.yaml}}]}}
  loops: {{template: chatml, {SCRIPT}: loops.yaml}}]}}
  breaks-off: {{template: chatml, {SCRIPT}: broken.yaml}}]}}
  hostile: {{template: chatml, {SCRIPT}: hostile.yaml}}]}}
  down: {{template: chatml, policy: full, targets: [{{speaks: completions, url: "http://127.0.0.1:PORT/v1"}}]}}
  down-with-fallback:
    {{template: sft-demo, policy: full, fallback: [demo], targets: [{{speaks: completions, url: "http://127.0.0.1:PORT/v1"}}]}}
"""
KEYED = """
keys: {file: keys.yaml}
models:
  open-a: {template: chatml, description: Says hello., targets: [{speaks: scripted, script: hello.yaml}]}
  open-b: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}
  private: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}
"""
EMPTY = """
recordings: {path: calls.sqlite}
models: {hello: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}}
"""
MODEL_OPTIONS = {
    "monday": ["--model", "demo"],
    "tuesday": ["--model", "demo-new"],
    "wednesday": ["--model", "demo", "--param", "max_tokens=2"],
    "thursday": ["--model", "demo-chatml"],
    "friday": ["--model", "demo"],
}
"""The name of a run → its options of ``gateway run``."""


def open_config() -> str:
    """The configuration with a port at which nothing listens."""
    return OPEN.replace("PORT", str(free_port()))


def rows() -> list[dict[str, Any]]:
    """The rows of the dataset: stories, bare sums, sums that are too hard, and a few that are cut, empty or refused."""
    rng = random.Random(7)
    kinds = ["story"] * 114 + ["sum"] * 42 + ["system"] * 22 + ["hard"] * 9 + ["cut"] * 6 + ["empty"] * 3 + ["long"] * 4
    rng.shuffle(kinds)
    made = []
    for number, kind in enumerate(kinds, 1):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        a += 300 if kind == "hard" else 0
        story = rng.choice(STORIES).format(who=rng.choice(NAMES), a=a, b=b)
        text = {"story": story, "hard": story, "empty": "x" * 300, "long": story * 90}.get(kind, f"{a}+{b}=?")
        messages = [*[SYSTEM] * (kind == "system"), {"role": "user", "content": text}]
        row = {"custom_id": f"sum-{number:03}", "messages": messages, "answer": str(a + b)}
        made.append({**row, "max_tokens": 1} if kind == "cut" else row)
    return made


def write_runs(folder: Path, *names: str, options: Sequence[str] = ()) -> None:
    """Write the outputs of the runs into a folder with the configuration. ``options``: those of ``gateway run``."""
    for name in names:
        data = rows()
        if name == "wednesday":
            for row in data[:160:20]:
                row["messages"][-1]["content"] = row["messages"][-1]["content"].replace("+", "+1", 1)
        (folder / f"{name}-rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in data), "utf-8")
        given = [*MODEL_OPTIONS[name], "--keep", "answer", *options, "--out", f"{name}.jsonl"]
        ended = command(folder, "run", f"{name}-rows.jsonl", *given)
        assert len((folder / f"{name}.jsonl").read_bytes().splitlines()) == len(data), ended.stderr


def call_all(served: Gateway) -> None:
    """Send the calls of a run of several models, each with its model as its request id."""
    question = "47+36=?"
    for model, body in {
        "assistant": {},
        "agent": {"tools": [ADD]},
        "thinks-too-long": {"max_tokens": 200},
        "loops": {"max_tokens": 400},
        "breaks-off": {},
        "hostile": {"messages": [{"role": "user", "content": HOSTILE}], "user": HOSTILE},
        "down": {},
        "down-with-fallback": {},
        "demo": {
            "messages": [
                {"role": "user", "content": "1+1=?"},
                {"role": "assistant", "content": "2"},
                {"role": "user", "content": question},
            ],
            "logprobs": True,
            "top_logprobs": 3,
        },
    }.items():
        headers = {"x-gateway-run": "mixed", "x-gateway-row": model, "x-request-id": f"call-{model}"}
        headers["content-type"] = "application/json"
        given = {"model": model, "messages": [{"role": "user", "content": question}], **body}
        served.http.post("/v1/chat/completions", content=json.dumps(given), headers=headers)
    for at in range(3):
        served.chat("down", f"{at}+1=?")
    assert served.wait_until_idle()
    for recorder in served.runtime.resources.recorders.values():
        recorder.flush().result()


def fallen_row(folder: Path) -> str:
    """The first row with a right answer on monday and a wrong one on tuesday."""
    right = []
    for name in ("monday", "tuesday"):
        lines = map(json.loads, (folder / f"{name}.jsonl").read_text("utf-8").splitlines())
        bodies = [(one["custom_id"], one["row"]["answer"], one["response"]["body"]) for one in lines]
        right.append(
            {
                row
                for row, answer, body in bodies
                if body.get("choices") and body["choices"][0]["message"]["content"] == answer
            }
        )
    return min(right[0] - right[1])


@contextmanager
def viewing(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of ``gateway view`` with these arguments."""
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "view", *arguments, "--no-browser"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(rb"http://\S+", line):
                    yield found[0].decode("ascii")
                    break
        finally:
            process.terminate()
