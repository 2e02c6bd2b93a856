"""The console examples of the pages: found, executed in a folder that is prepared for them, and compared.

A block ``console`` has commands after ``$ `` and, below each, the output. In an output, a line ``…`` stands for any
lines, and ``…`` inside a line for any text. The output of a command is what a terminal shows: standard output and
standard error in the order in which they are written. In a pipe, standard output is first.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cli.command import command
from tests.journeys.process import environment, serving
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, gateway

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?<=^```console\n)(.*?)(?=^```)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s{2,}# .*$")
VIEWER = re.compile(r" \| (jq|xxd|less)\b[^|]*$")
"""A program at the end of a pipe that only shows the output, and may not be installed."""
SOURCES = ROOT / "tests/workshop/importer/sources"


@dataclass(frozen=True, slots=True)
class Example:
    """One command of a page."""

    page: str
    command: str
    output: str
    """The documented output; empty: the page shows none."""
    start: int
    """The place of the output in the page."""


def examples_of(page: Path) -> list[Example]:
    """The commands of a page's console blocks, in order. A command goes on over lines until its quotes are closed."""
    text, name, found = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)), []
    for block in FENCE.finditer(text):
        place, lines = block.start(), block[0].splitlines(keepends=True)
        while lines:
            given = lines.pop(0)
            assert given.startswith("$ "), f"{name}: the block has output before its first command: {given}"
            while lines and not _is_complete(given):
                given += lines.pop(0)
            shown = ""
            while lines and not lines[0].startswith("$ "):
                shown += lines.pop(0)
            place += len(given)
            found.append(Example(name, given.removeprefix("$ ").rstrip("\n"), shown, place))
            place += len(shown)
    return found


def _is_complete(given: str) -> bool:
    if here := re.search(r"<<'(\w+)'\n", given):
        return given.endswith(f"\n{here[1]}\n")
    if given.rstrip().endswith(("\\", "|")):
        return False
    try:
        shlex.split(given)
    except ValueError:  # a quote is open
        return False
    return True


def prepare(folder: Path) -> None:
    """Write what the examples need: the demo's configuration, a model of the reader's own, and sources to import."""
    (folder / "demo").symlink_to(ROOT / "demo")
    for name in ("meta_templates", "prompts", "policies"):
        shutil.copytree(ROOT / name, folder / name)
    own = (
        "  my-sft-7b:\n    template: internlm\n    policy: eval\n    targets:\n      - {speaks: completions, "
        'url: "http://127.0.0.1:8101/v1", model: internlm-7b, engine: vllm}\n'
    )
    config = (ROOT / "gateway.yaml").read_text(encoding="utf-8").replace("# Point it", f"{own}\n# Point it")
    files = {
        "gateway.yaml": config,
        "meta_templates/my-rag.yaml": _yaml_of("prompters.md", "# meta_templates/my-rag.yaml\n"),
        "questions.jsonl": QUESTIONS,
        "tuning.jsonl": TUNING,
        **dict(zip(("rows.jsonl", "choices.jsonl", "dialogues.jsonl"), _rows(), strict=True)),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "configs").mkdir()
    shutil.copy(SOURCES / "sums_gen.py", folder / "configs")
    shutil.copy(SOURCES / "Modelfile", folder)
    for name in ("my-chat-7b", "my-sft-7b"):
        shutil.copytree(ROOT / "demo/model", folder / "models" / name)


ONE_MODEL = "models: {m: {template: chat, targets: [{speaks: scripted, script: answers.yaml}]}}\n"
TUNING = '{"messages": [{"role": "user", "content": "12+34=?"}, {"role": "assistant", "content": "46"}]}\n'
QUESTIONS = """\
{"custom_id": "sum-1", "messages": [{"role": "user", "content": "12+30=?"}], "answer": "42"}
{"custom_id": "sum-2", "messages": [{"role": "user", "content": "7+8=?"}], "answer": "15"}
"""


def _yaml_of(page: str, first_line: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"```yaml\n{first_line}")[2].partition("```")[0]


def _rows() -> list[str]:
    """The three rows of the page on bulk runs, each for one command."""
    page = (ROOT / "docs/run.md").read_text(encoding="utf-8")
    return next(
        block.splitlines(keepends=True)
        for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)
        if block.startswith('{"question"')
    )


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    code: int
    output: str


Ports = Mapping[int, int]
"""Port on 127.0.0.1 that the pages name → the port at which the tests serve."""


def execute(example: Example, folder: Path, ports: Ports) -> Done:
    """Run the command in the folder."""
    line = VIEWER.sub("", COMMENT.sub("", example.command).replace(" || exit 1", ""))
    line = line.replace(".venv/bin/gateway", "gateway").replace("~/models", "models")
    for named, port in ports.items():
        line = line.replace(f"127.0.0.1:{named}", f"127.0.0.1:{port}")
    words = shlex.split(line)
    if words[0] == "gateway" and not set(words) & {"|", ">", ">>", "&&", "with"}:
        done = command(folder, *words[1:], together=True, COLUMNS="120", NO_COLOR="1")
    else:
        line += " 2>&1" if "with" in words else ""  # its command is a process, which writes to the same output
        (folder / "bin").mkdir(exist_ok=True)
        shim = folder / "bin/gateway"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        path = f"{folder}/bin:{os.environ['PATH']}:{HARNESSES}/bin"
        offline = {"HF_HOME": f"{folder}/bin", "HF_HUB_OFFLINE": "1"}
        env = environment(PATH=path, NO_PROXY="*", no_proxy="*", NO_COLOR="1", **offline)
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, timeout=WAIT_SECONDS, check=False
        )
    out = done.stdout.decode()
    shown = (
        out + ("\n" if out and not out.endswith("\n") else "") + done.stderr.decode()
    )  # as a terminal shows a prompt
    for named, port in ports.items():
        shown = shown.replace(f"127.0.0.1:{port}", f"127.0.0.1:{named}")
    return Done(done.returncode, shown.replace(f"{folder}/", ""))


def agrees(documented: str, output: str) -> bool:
    """Whether an output is the documented one. Blanks at the ends of lines do not count."""
    parts = []
    for line in documented.splitlines():
        stripped = line.rstrip()
        parts.append("(.*\n)*?" if stripped == "…" else ".*".join(map(re.escape, stripped.split("…"))) + " *\n")
    return re.fullmatch("".join(parts), output if output.endswith("\n") else f"{output}\n") is not None


ASKS_AN_ENGINE = "asks an engine, and is executed on a page that serves one; tests/cli/test_first_verbs.py runs it"
HARNESSES = ROOT / ".venv-harnesses"
NEEDS_HARNESSES = "needs lm-eval, and is executed with that of tests/support/harnesses/environment/install"
NOT_RUN: dict[str, str] = {
    "make run": "installs and serves until it is stopped; tests/journeys/test_demo.py runs what it serves",
    "make test": "runs this test",
    "make check": "runs before the tests",
    "make docs": "installs packages, and runs in CI",
    "make bench": "takes more than an hour",
    "make image": "needs a program that builds images; tests/deploy/image runs it",
    "cp dist/": "needs a wheel; tests/deploy/image builds it",
    "BENCH=": "takes an hour",
    "python -m bench": "takes minutes; tests/bench runs the smoke test",
    ".venv/bin/python -m bench": "takes minutes; tests/bench runs the smoke test",
    ".venv/bin/python -m pytest": "runs tests",
    ".venv/bin/python ": "takes minutes; tests/reliability and tests/edge run the same with small numbers",
    "scripts/conformance": "tests/conformance runs the same cases",
    "gateway demo": "serves until it is stopped; tests/cli/test_first_verbs.py and tests/deploy/test_wheel.py run it",
    "gateway view": "serves until it is stopped; tests/viewer/test_view.py runs it",
    **dict.fromkeys(
        (
            "gateway with --run monday --scores monday-out",
            "gateway with --run tuesday --scores tuesday-out",
            "gateway why monday tuesday --scores monday-out",
            "gateway with --run first --scores first-out",
            "gateway with --run second --scores second-out",
            "gateway why first second --scores first-out",
        ),
        NEEDS_HARNESSES,
    ),
    "gateway with --run monday --scores": "needs lm-eval; docs/why.md runs the same with its task",
    **dict.fromkeys(
        ("vllm serve", "gateway run questions.jsonl --model Qwen3", "gateway why engine.jsonl"),
        "needs a GPU; docs/first-evaluation.md runs the same with the demo's engine",
    ),
    "gateway init": ASKS_AN_ENGINE,
    "gateway check --live": ASKS_AN_ENGINE,
    "GATEWAY_SERVER__": "serves until it is stopped; tests/config/test_settings.py reads the variables",
    "SSL_CERT_FILE=": "serves until it is stopped; tests/backend/test_network.py reads the variable",
    "curl --unix-socket": "needs a gateway at a Unix socket; tests/journeys/test_unix_socket.py serves there",
    "GATEWAY_CONFIG=": "serves until it is stopped; tests/edge/test_asgi.py runs the application",
    "tests/": "installs clients or engines from a package index",
    "python run_sums.py": "needs lm-eval; tests/metatemplate/harness runs it",
    "python tests/support/engines/numpy_server.py": "serves until it is stopped; tests/engines runs it",
    "pip install": "installs from a package index",
    "sudo ": "installs into /opt, and adds a user; tests/deploy/test_wheel.py installs the package",
    "pip download": "downloads from a package index; tests/deploy/image/install runs it",
    "pipx install": "installs from a package index; make release runs it",
    "uv tool install": "installs from a package index; make release runs it",
    "uvx": "installs from a package index, and serves until it is stopped",
    "npm install": "installs from a package index",
    "docker": "needs containers; tests/deploy reads the file",
    "kubectl": "needs a cluster; tests/deploy/kubernetes builds and checks the manifests",
    "(printf": "needs a cluster; tests/deploy/kubernetes checks what it sends",
    "export": "has no output",
    "lazyllm-env/bin/pip": "installs from a package index",
    "/usr/bin/python3.11": "makes an environment",
    "gateway import configs/bbh_gen.py --python": "needs mmengine; tests/workshop/importer/environment has it",
    "gateway import eval_demo.py": "reads an installed OpenCompass; tests/cli/test_import.py reads a package",
    "gateway run questions.jsonl --model my-sft-7b --engine ray": "needs Ray; tests/evaluate/running/test_ray_data.py",
    **dict.fromkeys(
        (
            "AIS_BENCH=",
            "CODEX_HOME=",
            "HF_HUB_OFFLINE=",
            "LITELLM_LOCAL_MODEL_COST_MAP=",
            "PROMPTFOO",
            "evalscope",
            "guidellm",
            "inspect",
            "lm-eval",
            "node ai_sdk",
            "node openai",
            "opencompass",
            "python -c",
            "python agents_sdk",
            "python dspy",
            "python instructor",
            "python langchain",
            "python llama_index",
            "python llm",
            "python openai",
            "python pydantic_ai",
        ),
        "needs a client that tests/support/harnesses/run installs, and which compares the scores",
    ),
}
"""The beginning of a command that this suite does not execute → the reason."""


def reason_not_to_run(example: Example) -> str | None:
    """Why an example is not executed; None: it is."""
    if example.command.endswith(" --no-serve"):
        return None
    return next((reason for start, reason in NOT_RUN.items() if example.command.startswith(start)), None)


SAMPLES = next((ROOT / "tests/evaluate/scores/samples/lm-eval-questions").iterdir())
"""What lm-eval has written about ``QUESTIONS``."""
SBATCH = """\
#!/bin/sh
# Runs the tasks of an array one after another, in place of SLURM.
for task in $(seq 0 "$(sed -n 's/^#SBATCH --array=0-//p' "$1")"); do
    SLURM_ARRAY_TASK_ID=$task sh "$1" >> sbatch.log 2>&1 || exit 1
done
echo "Submitted batch job 1"
"""
"""A program ``sbatch``."""


def _output_of(page: str, command: str) -> str:
    return next(one.output for one in examples_of(ROOT / "docs" / page) if one.command == command)


FILES_OF_PAGE = {
    "docs/run.md": {
        "out/samples.jsonl": SAMPLES.read_text(encoding="utf-8"),
        "answers.sbatch": _output_of("run.md", "cat answers.sbatch"),
        "bin/sbatch": SBATCH,
    },
    "docs/operations.md": {
        "gateway.yaml": f"keys: {{file: keys.yaml}}\n{ONE_MODEL}",
        "keys.yaml": f'laptop: {{sha256: "{"0" * 64}"}}\n',
    },
    "docs/maintenance.md": {
        "gateway.yaml": "recordings: {path: recordings.sqlite}\nmodels: {demo: {template: sft-demo, policy: full, "
        "targets: [{speaks: embedded, path: demo/model}]}}\n",
        "policies/full.yaml": "record: full\n",
        "questions.jsonl": QUESTIONS.replace('"answer"', '"temperature": 0, "answer"'),
    },
    "docs/kubernetes.md": {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in (ROOT / "deploy/kubernetes/overlays/example").rglob("*.yaml")
    },
    "docs/find-a-request.md": {
        "gateway.yaml": _yaml_of("find-a-request.md", "# gateway.yaml\n"),
        "policies/recorded.yaml": _yaml_of("find-a-request.md", "# policies/recorded.yaml\n"),
    },
    "docs/chat-templates.md": {
        "meta_templates/my-chat-7b.yaml": "kind: jinja\nfile: my-chat-7b/chat_template.jinja\n",
        "meta_templates/my-chat-7b/chat_template.jinja": "{{ bos_token }}{{ messages[0].content }}",
        "meta_templates/my-chat-7b/tokenizer_config.json": '{"bos_token": "<s>"}',
        "meta_templates/my-chat-7b/special_tokens_map.json": '{"bos_token": "<|begin|>"}',
    },
}
"""Page → files that its examples need in addition."""

Report = Callable[[Example, Done], None]


def can_run(ports: Ports) -> Iterator[str]:
    """The reasons not to run a command that do not apply now."""
    if len(ports) > 1:
        yield ASKS_AN_ENGINE
    if (HARNESSES / ".ready").exists():
        yield NEEDS_HARNESSES


SERVED_DEMO = re.compile(r"gateway demo (\S+) --port (\d+)")
"""A command that serves the demo from a folder. The test serves the files that it writes, until the page's end."""
SERVED_WITH_LOG = "gateway serve 2> gateway.log"
"""A command that serves the page's folder, as a process, until the page's end. Later commands may read the log."""


def run_page(page: Path, folder: Path, port: int, report: Report) -> None:
    """Execute a page's examples one after another, and report each. After ``cd``, they run in that folder.

    ``port``: that of a gateway which serves the folder's configuration.
    """
    prepare(folder)
    for name, text in FILES_OF_PAGE.get(str(page.relative_to(ROOT)), {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755 if text.startswith("#!") else 0o644)
    ports = {8000: port}
    with ExitStack() as demos:
        for example in examples_of(page):
            if example.command.startswith("cd "):
                folder /= example.command.removeprefix("cd ")
                assert folder.is_dir(), example.command
            elif served := SERVED_DEMO.fullmatch(example.command):
                written = replace(example, command=f"{example.command} --no-serve")
                report(example, execute(written, folder, {}))
                config = (folder / served[1] / "gateway.yaml").read_text(encoding="utf-8")
                ports[int(served[2])] = demos.enter_context(gateway(folder / served[1], config)).port
            elif example.command == SERVED_WITH_LOG:
                (folder / "gateway.log").symlink_to("stderr.log")
                ports[8000] = demos.enter_context(serving(folder, {})).port
            elif (reason := reason_not_to_run(example)) is None or reason in can_run(ports):
                done = execute(example, folder, ports)
                if done.code and (folder / "gateway.log").exists():  # lines and recordings are written after the answer
                    eventually(lambda: not execute(example, folder, ports).code)  # noqa: B023 - called at once
                    done = execute(example, folder, ports)
                report(example, done)
