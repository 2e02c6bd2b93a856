"""``gateway keys`` with a key file that a running gateway uses."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metatemplate.values.words import utc
from tests.cli.command import command
from tests.journeys.process import run
from tests.support.serving import eventually, gateway, write_files
from tests.support.world import HELLO

CONFIG = """\
keys: {file: keys.yaml}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""
DIGEST = hashlib.sha256(b"old-key").hexdigest()
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys = f'# ours\nold:  # the first\n  sha256: "{DIGEST}"\n'
    write_files(tmp_path, {**HELLO, "gateway.yaml": CONFIG, "keys.yaml": keys})
    return tmp_path


def test_a_written_key_works_and_a_revoked_key_does_not(folder: Path) -> None:
    def status(key: bytes) -> int:
        return served.http.get("/v1/models", headers={"authorization": f"Bearer {key.decode()}"}).status_code

    with gateway(folder, CONFIG) as served:
        made = command(folder, "keys", "new", "ci", "--write")
        assert (made.returncode, made.stdout) == (0, b"added ci to keys.yaml\n")
        (key,) = re.findall(rb"gk_[0-9a-f]{6}_[\w-]{43}", made.stderr)
        assert b"note: keys.yaml had the mode 0644 and has 0600 now" in made.stderr
        text = (folder / "keys.yaml").read_text()
        assert text.startswith(f'# ours\nold:  # the first\n  sha256: "{DIGEST}"\nci:\n')
        assert key.decode() not in text
        assert stat.S_IMODE((folder / "keys.yaml").stat().st_mode) == 0o600
        assert served.reload()
        assert (status(key), status(b"old-key")) == (200, 200)

        revoked = command(folder, "keys", "revoke", "old")
        assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, b"removed old from keys.yaml\n", b"")
        assert served.reload()
        assert (status(key), status(b"old-key")) == (200, 401)


def test_the_list_has_the_state_of_each_key(folder: Path) -> None:
    soon, later = utc(time.time() + 3 * DAY), utc(time.time() + 300 * DAY)
    with (folder / "keys.yaml").open("a") as file:
        for number, expires in enumerate(["2020-01-01", soon, later]):
            file.write(f'k{number}: {{sha256: "{number:064d}", expires: {expires}, models: ["a*", m]}}\n')
    ended = command(folder, "keys", "list")
    assert ended.returncode == 0, ended.stderr
    assert [re.split("  +", line) for line in ended.stdout.decode().splitlines()] == [
        ["name", "models", "expires", "state"],
        ["old", "*", "never", "valid"],
        ["k0", "a*, m", "2020-01-02T00:00:00Z", "expired"],
        ["k1", "a*, m", soon, "expires soon"],
        ["k2", "a*, m", later, "valid"],
    ]
    rows = json.loads(command(folder, "keys", "list", "--json").stdout)
    assert rows[1] == {"name": "k0", "models": ["a*", "m"], "expires": "2020-01-02T00:00:00Z", "state": "expired"}

    checked = command(folder, "check")
    assert checked.returncode == 0
    advice = (
        "; set a later expires in the key file, make a new key (gateway keys new NAME --write), or remove this one "
    )
    assert checked.stderr.decode().splitlines() == [
        f"note: the client key k0 expired at 2020-01-02T00:00:00Z{advice}(gateway keys revoke k0)",
        f"note: the client key k1 expires soon, at {soon}{advice}(gateway keys revoke k1)",
    ]


def test_the_first_key_makes_the_file(folder: Path) -> None:
    (folder / "keys.yaml").unlink()
    assert command(folder, "keys", "new", "ci", "--write").returncode == 0
    assert stat.S_IMODE((folder / "keys.yaml").stat().st_mode) == 0o600
    checked = command(folder, "check", "-q")
    assert (checked.returncode, checked.stderr) == (0, b"")


REFUSED = {
    "a taken name": (("new", "old", "--write"), 2, "error: keys.yaml has an entry old already; choose another name"),
    "an unknown name": (("revoke", "odl"), 2, 'error: keys.yaml has no key "odl" (did you mean "old"?)'),
    "the only key": (("revoke", "old"), 2, "error: keys.yaml has only the key old, and a gateway does"),
    "no name": (("revoke",), 2, "error: keys revoke needs the NAME of a key"),
    "a name too many": (("list", "old"), 2, "error: keys list takes no NAME"),
    "an option of new": (("list", "--write"), 2, "error: keys list takes no --write"),
    "an option of list": (("new", "x", "--json"), 2, "error: keys new takes no --json"),
    "a configuration without --write": (
        ("new", "x", "--config", "gateway.yaml"),
        2,
        "error: keys new takes no --config without --write",
    ),
    "no key file": (("list", "--config", "bare.yaml"), 3, "bare.yaml:1 keys.file: is missing; write `keys: {file:"),
    "no configuration": (("list", "--config", "none.yaml"), 3, "error: none.yaml: no such file"),
    "a broken key file": (("revoke", "old", "--config", "broken.yaml"), 3, "broken-keys.yaml:1 old.sha256: must be"),
    "a key file in braces": (("new", "a", "--write", "--config", "flow.yaml"), 2, "flow-keys.yaml has a form that"),
    "a missing folder": (("new", "a", "--write", "--config", "far.yaml"), 2, "far/keys.yaml cannot be written (No"),
}


@pytest.mark.parametrize(("arguments", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_a_refused_action_changes_nothing_and_shows_no_key(
    folder: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    files = {
        "bare.yaml": CONFIG.partition("\n")[2],
        "broken.yaml": CONFIG.replace("keys.yaml", "broken-keys.yaml"),
        "broken-keys.yaml": "old: {sha256: short}\n",
        "flow.yaml": CONFIG.replace("keys.yaml", "flow-keys.yaml"),
        "flow-keys.yaml": f'{{old: {{sha256: "{DIGEST}"}}}}\n',
        "far.yaml": CONFIG.replace("keys.yaml", "far/keys.yaml"),
    }
    write_files(folder, files)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    ended = command(folder, "keys", *arguments)
    assert ended.returncode == code
    assert told in ended.stderr.decode()
    assert b"gk_" not in ended.stderr + ended.stdout
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_keys_made_at_the_same_time_are_all_in_the_file(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda number: run(folder, "keys", "new", f"k{number}", "--write"), range(4)))
    assert [one.returncode for one in ended] == [0] * 4, ended
    names = [row["name"] for row in json.loads(command(folder, "keys", "list", "--json").stdout)]
    assert sorted(names) == ["k0", "k1", "k2", "k3", "old"]


def test_of_two_keys_revoked_at_the_same_time_one_stays(folder: Path) -> None:
    assert command(folder, "keys", "new", "ci", "--write").returncode == 0
    lock = os.open(folder, os.O_RDONLY)
    with ThreadPoolExecutor(2) as pool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ended = [pool.submit(run, folder, "keys", "revoke", name) for name in ("ci", "old")]
            waiting = rf"-> FLOCK .*:{folder.stat().st_ino} "
            assert eventually(lambda: len(re.findall(waiting, Path("/proc/locks").read_text())) == 2)
        finally:
            os.close(lock)
        assert sorted(one.result().returncode for one in ended) == [0, 2]
    assert len(json.loads(command(folder, "keys", "list", "--json").stdout)) == 1


def test_a_revoked_key_that_a_running_gateway_may_still_accept_has_a_note(folder: Path) -> None:
    assert command(folder, "keys", "new", "ci", "--write").returncode == 0
    (folder / "gateway.yaml").write_text(CONFIG.replace("template: chat", "template: chatt"))
    revoked = command(folder, "keys", "revoke", "old")
    assert (revoked.returncode, revoked.stdout) == (0, b"removed old from keys.yaml\n")
    assert revoked.stderr.startswith(b"note: the configuration has problems (gateway check); a running gateway")
