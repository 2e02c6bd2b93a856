"""The watcher sees what people do to files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from gateway.config.files.watcher import FileWatcher
from gateway.config.load import read_configuration
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue, Message


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def replace(path: Path) -> None:
    """As editors save: a new file takes the old one's name, with the old one's times."""
    times = path.stat()
    beside = path.with_suffix(".tmp")
    beside.write_bytes(path.read_bytes())
    os.utime(beside, ns=(times.st_atime_ns, times.st_mtime_ns))
    beside.rename(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte more": lambda home: append(home / "gateway.yaml", "\n"),
    "a template edited": lambda home: append(home / "meta_templates" / "a.yaml", "\n"),
    "a neighbour that nothing names yet": lambda home: append(home / "meta_templates" / "b.yaml", "\n"),
    "a new file in a folder": lambda home: (home / "meta_templates" / "new.yaml").write_text("x"),
    "a new folder": lambda home: copytree(home / "meta_templates", home / "policies"),
    "a file gone": lambda home: (home / "meta_templates" / "a.yaml").unlink(),
    "a file replaced": lambda home: replace(home / "gateway.yaml"),
    "a secret renewed": lambda home: (home / "key.txt").write_text("other"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "meta_templates").mkdir()
    for name in ("gateway.yaml", "key.txt", "meta_templates/a.yaml", "meta_templates/b.yaml"):
        (tmp_path / name).write_text("x")
    return tmp_path


def watch(home: Path) -> FileWatcher:
    return FileWatcher([home / "gateway.yaml", home / "meta_templates" / "a.yaml", home / "key.txt"])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_once_when_the_files_are_quiet(name: str, home: Path) -> None:
    watched = watch(home)
    assert not watched.changed()
    CHANGES[name](home)
    assert [watched.changed() for _ in range(4)] == [False, True, False, False]


ARRIVALS: dict[str, tuple[str, str]] = {
    # what comes into a model's folder, what the prompt is then
    "tokens": ("m/tokenizer_config.json", '{"bos_token": "<s>"}'),
    "an older folder's tokens": ("m/special_tokens_map.json", '{"bos_token": "<s>"}'),
    "a named template": ("m/additional_chat_templates/default.jinja", "<s>hi"),
}


@pytest.mark.parametrize(("name", "text"), ARRIVALS.values(), ids=ARRIVALS)
@pytest.mark.parametrize("folder", [False, True])
def test_a_file_that_comes_into_a_models_folder_is_seen(home: Path, name: str, text: str, folder: bool) -> None:
    (home / "meta_templates" / "m").mkdir()
    if folder:
        (home / "meta_templates" / "m" / "additional_chat_templates").mkdir()
    (home / "meta_templates" / "m" / "chat_template.jinja").write_text("{{ bos_token }}hi")
    (home / "meta_templates" / "a.yaml").write_text("kind: jinja\nfile: m/chat_template.jinja\n")
    target = "{speaks: completions, url: 'http://127.0.0.1:8101/v1'}"
    (home / "gateway.yaml").write_text(f"models: {{x: {{template: a, targets: [{target}]}}}}\n")
    watched = FileWatcher([home / "gateway.yaml"])

    def prompt() -> str:
        outcome = read_configuration(home / "gateway.yaml", {})
        assert outcome.snapshot is not None, outcome.problems
        watched.follow((*outcome.files, *outcome.looked_at))
        return build(outcome.snapshot.models["x"].template).render(Dialogue((Message("user", "x"),))).text

    assert prompt() == "hi"
    assert not watched.changed()
    path = home / "meta_templates" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert [watched.changed() for _ in range(3)] == [False, True, False]
    assert prompt() == "<s>hi"


def test_a_file_that_is_still_growing_is_not_reported(home: Path) -> None:
    watched = watch(home)
    for _ in range(5):
        append(home / "gateway.yaml", "more\n")
        assert not watched.changed()
    assert watched.changed()


def test_other_files_in_the_folder_do_not_matter(home: Path) -> None:
    watched = watch(home)
    (home / "gateway.yaml.swp").write_text("x")
    (home / "server.log").write_text("x")
    assert not any(watched.changed() for _ in range(3))


def test_a_change_that_is_undone_is_no_change(home: Path) -> None:
    watched = watch(home)
    (home / "meta_templates" / "new.yaml").write_text("x")
    assert not watched.changed()
    (home / "meta_templates" / "new.yaml").unlink()
    assert not any(watched.changed() for _ in range(3))


def test_a_change_during_the_first_load_is_seen_afterwards(home: Path) -> None:
    watched = FileWatcher([home / "gateway.yaml"])
    append(home / "meta_templates" / "a.yaml", "\n")  # after the load has read it
    watched.follow([home / "gateway.yaml", home / "meta_templates" / "a.yaml", home / "key.txt"])
    assert [watched.changed() for _ in range(3)] == [False, True, False]


def test_files_that_are_no_longer_named_are_no_longer_watched(home: Path) -> None:
    watched = watch(home)
    watched.follow([home / "gateway.yaml"])
    (home / "key.txt").write_text("other")
    assert not any(watched.changed() for _ in range(3))
