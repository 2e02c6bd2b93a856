"""The output file holds each row once, whatever ended the run before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli.options import CommandError
from gateway.evaluate.running.output import OutputFile, manifest_path


def line(custom_id: str, status: int = 200) -> bytes:
    value = {"custom_id": custom_id, "response": {"status_code": status, "body": {}}, "error": None}
    return json.dumps(value).encode() + b"\n"


def output(folder: Path, *lines: bytes) -> Path:
    path = folder / "out.jsonl"
    path.write_bytes(b"".join(lines))
    manifest_path(path).write_text("{}")
    return path


def test_rows_of_an_earlier_run_are_known(tmp_path: Path) -> None:
    path = output(tmp_path, line("a"), line("b", 500))
    with OutputFile(path) as opened:
        assert opened.done == {"a", "b"}
        opened.append(line("c"))
    assert path.read_bytes() == line("a") + line("b", 500) + line("c")


@pytest.mark.parametrize("size", [1, 20, len(line("b")) - 1])
def test_a_partial_last_line_is_removed(size: int, tmp_path: Path) -> None:
    path = output(tmp_path, line("a"), line("b")[:size])
    with OutputFile(path) as opened:
        assert opened.done == {"a"}
        opened.append(line("b"))
    assert path.read_bytes() == line("a") + line("b")


BROKEN = {
    "no JSON": (line("a") + b"\0\0\n" + line("b"), "out.jsonl:2: this line is not from"),
    "another form": (b"5\n", "out.jsonl:1: this line is not from"),
    "a row without an id": (b"{}\n", "out.jsonl:1: this line is not from"),
    "a row twice": (line("a") + line("b") + line("a"), 'out.jsonl:3: this is the second line of row "a"'),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_file_is_refused_and_kept(content: bytes, message: str, tmp_path: Path) -> None:
    path = output(tmp_path, content)
    with pytest.raises(CommandError) as refused:
        OutputFile(path)
    assert message in str(refused.value)
    assert path.read_bytes() == content


def test_a_file_of_others_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no line end")
    with pytest.raises(CommandError, match="choose another --out"):
        OutputFile(path)
    assert path.read_text() == "no line end"


def test_a_second_run_cannot_open_the_file(tmp_path: Path) -> None:
    path = output(tmp_path, line("a"), line("b", 500))
    with OutputFile(path) as first:
        with pytest.raises(CommandError, match="another `gateway run`"):
            OutputFile(path)
        first.drop_failed()  # replaces the file
        with pytest.raises(CommandError, match="another `gateway run`"):
            OutputFile(path)
    with OutputFile(path) as opened:
        assert opened.done == {"a"}


def test_failed_rows_are_dropped(tmp_path: Path) -> None:
    timed_out = json.dumps({"custom_id": "d", "response": None, "error": {"code": "timeout"}}).encode() + b"\n"
    path = output(tmp_path, line("a"), line("b", 500), line("c"), timed_out)
    with OutputFile(path) as opened:
        opened.drop_failed()
        assert opened.done == {"a", "c"}
        opened.append(line("b"))
    assert path.read_bytes() == line("a") + line("c") + line("b")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.jsonl", "out.manifest.json"]
