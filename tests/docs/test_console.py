"""The console examples of README and docs do what the pages show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.server.greeting import greeting
from tests.docs.console import (
    NOT_RUN,
    PAGES,
    SERVED_DEMO,
    Done,
    Example,
    agrees,
    examples_of,
    prepare,
    reason_not_to_run,
    run_page,
)
from tests.support.serving import ROOT, Gateway, gateway

WRONG_COMMAND_LINE = 2
README = ROOT / "README.md"
EXAMPLES = {page: examples_of(page) for page in PAGES}
EXECUTED = [
    page
    for page, examples in EXAMPLES.items()
    if any(reason_not_to_run(one) is None or SERVED_DEMO.fullmatch(one.command) for one in examples)
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("served")
    prepare(folder)
    with gateway(folder, (folder / "gateway.yaml").read_text(encoding="utf-8")) as running:
        yield running


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_examples_of_a_page_show_what_the_commands_print(page: Path, served: Gateway, tmp_path: Path) -> None:
    wrong: list[str] = []

    def report(example: Example, done: Done) -> None:
        if not (agrees(example.output, done.output) if example.output else done.code < WRONG_COMMAND_LINE):
            wrong.append(f"$ {example.command}\n{done.output}(exit code {done.code})")

    run_page(page, tmp_path, served.port, report)
    assert not wrong, "\n".join(["python -m tests.docs.record corrects outputs", *wrong])


def test_the_readme_shows_what_a_start_prints() -> None:
    start = next(example for example in EXAMPLES[README] if example.command == "make run")
    assert agrees(start.output, f"{greeting(load(ROOT / 'gateway.yaml', {}), 8000)}\n")


def test_every_reason_not_to_run_a_command_is_needed() -> None:
    commands = [example.command for examples in EXAMPLES.values() for example in examples]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in commands)] == []


def test_every_block_of_commands_is_a_console_block() -> None:
    others = [
        str(page) for page in PAGES if any(f"```{word}\n" in page.read_text() for word in ("sh", "bash", "shell"))
    ]
    assert others == []


def test_the_comparison_finds_differences() -> None:
    assert agrees("a\n…\nb …\n", "a\nx\ny\nb 7\n")
    assert not agrees("a\nb\n", "a\nc\n")
    assert not agrees("a\n", "a\nb\n")
