"""``docs/clients.md`` shows the packages and the command of every client in ``tests/harnesses``."""

from __future__ import annotations

import shlex

import pytest

from tests.harnesses.client import Client, Job
from tests.harnesses.engines import COLUMNS
from tests.harnesses.rows import ROWS
from tests.serving import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("client", ROWS.values(), ids=ROWS)
def test_a_client_section_shows_its_command_and_packages(client: Client) -> None:
    job = Job("http://127.0.0.1:8000/v1", "demo", "demo/model", bin="BIN")
    section = PAGE.split(f"\n### {client.title}\n")[1].split("\n#")[0]
    assert f"$ {shlex.join(client.command(job)).replace('BIN/', '')}\n" in section
    for package in client.packages.names:
        assert package in section


def test_the_table_has_a_row_for_each_client_and_a_column_for_each_engine() -> None:
    table = PAGE[PAGE.index("| Client |") :].splitlines()
    columns = [cell.strip() for cell in table[0].strip("|").split("|")]
    assert columns[1:] == [engine.title for engine in COLUMNS.values()]
    rows = [line.split("|")[1].strip() for line in table[2 : 2 + len(ROWS)]]
    assert rows == [client.title for client in ROWS.values()]
