"""``scripts/release`` builds the files of a release, and refuses a commit that cannot be released."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from metatemplate.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
SOURCES = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
AUTHOR = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org"}
COMMITTER = {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}


def git(folder: Path, *arguments: str) -> None:
    environment = os.environ | AUTHOR | COMMITTER
    subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True)


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "scripts/release"), "--build-only"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: the files of this checkout."""
    folder = tmp_path_factory.mktemp("release") / "repository"
    for name in SOURCES:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return folder


@pytest.fixture
def repository(committed: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(committed), "repository")
    return tmp_path / "repository"


def test_the_files_of_a_release_are_built_with_checksums_and_notes(repository: Path) -> None:
    done = release(repository)
    assert done.returncode == 0, done.stderr
    dist = repository / "dist"
    packages = {f"{name}-{VERSION}{end}" for name in ("meta_gateway", "metatemplate") for end in (WHEEL, ".tar.gz")}
    assert {path.name for path in dist.iterdir()} == packages | {"SHA256SUMS", "NOTES.md"}
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=dist, capture_output=True, text=True, check=True)
    assert checked.stdout.count(": OK\n") == len(packages)
    assert "built twice with the same bytes" in done.stdout
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (dist / "NOTES.md").read_text(encoding="utf-8").strip() in changes
    assert (
        done.stdout.index(f"git tag -s v{VERSION}") < done.stdout.index("uv publish") < done.stdout.index("docker push")
    )
    folder = repository / "metatemplate"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=folder, capture_output=True, check=True)
    (wheel,) = (folder / "dist").iterdir()
    assert _files(dist / wheel.name) == _files(wheel), "the wheel of the sdist, and that of the folder"


WHEEL = "-py3-none-any.whl"


def _files(wheel: Path) -> dict[str, bytes]:
    archive = zipfile.ZipFile(wheel)
    return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_a_commit_that_cannot_be_released_is_refused_with_all_reasons(repository: Path) -> None:
    changes = repository / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(f"## [{VERSION}]", "## [0.0.9]"))
    git(repository, "tag", f"v{VERSION}")
    done = release(repository)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "these files differ from the commit; commit them or put them aside:",
        " M CHANGELOG.md",
        f"the tag v{VERSION} exists; raise the version in pyproject.toml and metatemplate/version.py",
        f"CHANGELOG.md has no text under ## [{VERSION}]; write what changed for users",
    ]
    assert not (repository / "dist").exists()


def test_a_new_file_is_a_difference_from_the_commit(repository: Path) -> None:
    (repository / "gateway" / "new.py").write_text("")
    done = release(repository)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, ["?? gateway/new.py"])


def test_the_error_of_an_installed_demo_that_ends_is_printed(tmp_path: Path) -> None:
    """Commands as an installer makes them, of which ``gateway`` fails."""
    commands = {"meta-gateway": f"cat {ROOT}/docs/quickstart.md", "gateway": "echo ModuleNotFoundError >&2; exit 7"}
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    prove = "import pathlib, runpy, sys; runpy.run_path(sys.argv[1])['prove'](*map(pathlib.Path, sys.argv[2:]))"
    command = [sys.executable, "-c", prove, str(ROOT / "scripts/release"), str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"{tmp_path}/gateway demo ended with exit code 7\nModuleNotFoundError\n\n",
    )


@pytest.mark.parametrize("script", ["release", "litellm-pin"])
def test_a_script_refuses_an_unknown_option_before_it_does_anything(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--no-such"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[1]) == (2, f"{script}: error: unrecognized arguments: --no-such")
