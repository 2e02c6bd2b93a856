"""The guides show what ``tests/support/harnesses/run`` does, and the gateway takes the requests that they show."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.engines.engine import Engine
from tests.support.harnesses.around import with_arguments
from tests.support.harnesses.client import CONFIGS, Client, Job
from tests.support.harnesses.engines import AGENT_COLUMNS, CALL_COLUMNS, COLUMNS, OBJECT_COLUMNS
from tests.support.harnesses.rows import AGENT_ROWS, CALL_ROWS, OBJECT_ROWS, ROWS
from tests.support.harnesses.sums import rows
from tests.support.serving import ROOT, Gateway, gateway

TABLE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
GUIDES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "harnesses").glob("[!R]*.md")}
JOB = Job("http://127.0.0.1:8000/v1", "demo", "demo/model", bin="BIN")
CONFIGURATION = re.compile(r"```yaml\n# gateway\.yaml\n(.*?)```", re.DOTALL)
REQUEST = re.compile(r"^`POST (/\S+)`:\n\n```json\n(.*?)```", re.MULTILINE | re.DOTALL)

CLIENTS = {**ROWS, **OBJECT_ROWS, **AGENT_ROWS, **CALL_ROWS}
HARNESSES = {name: client for name, client in ROWS.items() if client.scores}
"""Those that write the score of each row."""

each_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def assignments(variables: dict[str, str]) -> str:
    """Variables as a shell writes them, each with a blank behind it."""
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())


def shown(client: Client) -> str:
    """The command of a client as a guide has it."""
    return f"$ {assignments(dict(client.variables))}{shlex.join(client.command(JOB))}\n".replace("BIN/", "")


@each_client
def test_a_guide_shows_the_command_of_its_client(client: Client) -> None:
    assert shown(client) in GUIDES[client.guide]


@pytest.mark.parametrize("client", HARNESSES.values(), ids=HARNESSES)
def test_a_guide_shows_the_command_in_a_gateway_of_its_own(client: Client) -> None:
    words = ["gateway", *with_arguments(client, JOB.tokenizer, JOB.bin, "monday")]
    guide, command = GUIDES[client.guide], f"$ {shlex.join(words)}\n".replace("BIN/", "")
    assert command in guide.partition(shown(client))[0]


@each_client
def test_a_guide_shows_the_packages_and_variables_of_its_client(client: Client) -> None:
    install = ("npm", "install", "--ignore-scripts") if client.packages.node else ("pip", "install")
    assert f"$ {shlex.join([*install, *client.packages.names])}\n" in GUIDES[client.guide]
    read = {name: value for name, value in JOB.variables().items() if name in client.reads}
    assert not read or f"$ export {assignments(read).rstrip()}\n" in GUIDES[client.guide]


@each_client
def test_a_guide_shows_the_files_of_its_client(client: Client) -> None:
    for name in client.files:
        assert f"\n{(CONFIGS / name).read_text(encoding='utf-8')}```" in GUIDES[client.guide], name


def test_the_command_for_the_questions_writes_them() -> None:
    page = (ROOT / "docs" / "harnesses" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ python (-c .+) > sums.jsonl", page, re.MULTILINE)
    shown = subprocess.run(
        [sys.executable, *shlex.split(command)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout == rows(100)


def test_each_guide_has_a_client() -> None:
    assert set(GUIDES) == {client.guide for client in CLIENTS.values()}


@pytest.mark.parametrize(
    ("number", "clients", "engines"),
    [
        (1, ROWS, COLUMNS),
        (2, OBJECT_ROWS, OBJECT_COLUMNS),
        (3, AGENT_ROWS, AGENT_COLUMNS),
        (4, CALL_ROWS, CALL_COLUMNS),
    ],
    ids=["sums", "objects", "agents", "calls"],
)
def test_a_table_has_a_row_for_each_client_and_a_column_for_each_engine(
    number: int, clients: Mapping[str, Client], engines: Mapping[str, Engine]
) -> None:
    table = TABLE.split("| Client |")[number].splitlines()
    columns = [cell.strip() for cell in table[0].strip("|").split("|")]
    assert columns == [engine.title for engine in engines.values()]
    names = [line.split("|")[1].strip() for line in table[2 : 2 + len(clients)]]
    assert names == [f"[{client.title}](harnesses/{client.guide}.md)" for client in clients.values()]


@pytest.fixture(scope="module", params=["eval", "production"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with the configuration that all guides have, under a policy."""
    (found,) = {found for guide in GUIDES.values() for found in CONFIGURATION.findall(guide)}
    config = found.replace("demo/model", str(ROOT / "demo" / "model")).replace(
        "policy: eval", f"policy: {request.param}"
    )
    folder: Path = tmp_path_factory.mktemp("guides")
    with gateway(folder, config) as running:
        yield running


@pytest.mark.parametrize("guide", GUIDES)
def test_each_policy_takes_the_requests_of_a_guide(demo: Gateway, guide: str) -> None:
    requests = REQUEST.findall(GUIDES[guide])
    assert requests
    for path, body in requests:
        answer = demo.http.post(path, json=json.loads(body))
        assert answer.status_code == 200, answer.text
