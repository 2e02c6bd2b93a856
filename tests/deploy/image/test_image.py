"""The image of deploy/Containerfile is built from a folder of wheels without a network, and serves.

It runs as in the compose file: not as root, without capabilities, on a read-only file system, in a network of its own.
Only the base image is another: Debian from its packages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import ROOT, eventually

IMAGE = "localhost/meta-gateway-test"
MISSING = [name for name in ("buildah", "unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
if MISSING or os.geteuid() != 0 or not (ROOT / "wheels/.ready").exists():
    reason = "tests/deploy/install-tools and tests/deploy/image/install, as root, prepare the tests of the image"
    pytest.skip(reason, allow_module_level=True)

START = """set -e
ip link set lo up
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs tmpfs "$1/tmp"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot "$@"
"""
"""Makes the file system read-only but for /tmp, and the loopback of the new network usable."""
UNPRIVILEGED = ("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


def done(*command: str | Path) -> str:
    """The standard output of a command."""
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.strip()


@dataclass
class Container:
    """A running container."""

    config: dict[str, Any]
    """The image's configuration in Docker's format."""
    root: str
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def command(self, *words: str) -> list[str]:
        """A command in the container's root as the image's user, with the image's variables and folder."""
        user, group = self.config["User"].split(":")
        inside = f'cd {self.config["WorkingDir"]} && exec "$@"'
        return [
            *(self.root, "setpriv", f"--reuid={user}", f"--regid={group}", *UNPRIVILEGED),
            *("env", "-i", *self.config["Env"], "sh", "-c", inside, "sh", *words),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        enter = ("nsenter", "--target", str(self.process.pid), "--net", "--mount", "chroot")
        return subprocess.run([*enter, *self.command(*words)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The id of a container made of the image."""
    base = done("buildah", "from", "--pull-never", "localhost/meta-gateway-base")
    python = done(
        "buildah", "run", "--isolation", "chroot", base, "python3", "-c", "import sys; print(sys.version_info[:2])"
    )
    done("buildah", "rm", base)
    if python != str(sys.version_info[:2]):
        pytest.skip(f"the wheels are for Python {sys.version_info[:2]}, and the base image has {python}")
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "wheels")
    builder = "BUILDAH_ISOLATION=chroot unshare --net buildah build --pull-never --format docker"
    names = ("BASE=localhost/meta-gateway-base", "LOCK=requirements.lock", f"IMAGE={IMAGE}", "WHEELS=wheels")
    done("make", "image", f"BUILDER={builder}", *names)
    container = done("buildah", "from", "--pull-never", IMAGE)
    yield container
    done("buildah", "rm", container)
    done("buildah", "rmi", IMAGE)


@pytest.fixture(scope="module")
def container(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The image's command, running."""
    config = json.loads(done("buildah", "inspect", image))["Docker"]["config"]
    root, log = done("buildah", "mount", image), tmp_path_factory.mktemp("image") / "stderr.log"
    with log.open("wb") as stderr:
        start = ("unshare", "--net", "--mount", "sh", "-c", START, "sh")
        made = Container(config, root, log)
        made.process = subprocess.Popen([*start, *made.command(*config["Cmd"])], stderr=stderr)
    try:
        assert eventually(lambda: b"serving demo" in log.read_bytes() or made.process.poll() is not None)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_the_health_check_of_the_image_is_green(container: Container) -> None:
    kind, *check = container.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    for variables in ((), ("env", "HTTP_PROXY=http://127.0.0.1:9")):  # a proxy for litellm targets
        assert container.run(*variables, *check).returncode == 0, container.log.read_text()


def test_the_demo_in_the_image_answers(container: Container) -> None:
    asked = container.run("gateway", "ask", "demo", "1+1=?")
    assert asked.stdout == "2\n", asked.stderr


def test_the_process_has_no_rights(container: Container) -> None:
    status = Path(f"/proc/{container.process.pid}/status").read_text(encoding="utf-8")
    found = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    assert found["Uid"] == found["Gid"] == ["10001"] * 4
    assert {found[name][0] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}


def test_the_file_system_is_read_only_but_for_temporary_files(container: Container) -> None:
    assert "Read-only" in container.run("touch", "/srv/new").stderr
    assert container.run("touch", "/tmp/new").returncode == 0


def test_the_image_has_the_packages_of_its_lock_file_only(container: Container) -> None:
    assert container.run("python", "-c", "import litellm").returncode == 1
    assert container.run("meta-gateway", "--version").stdout.startswith("gateway ")


def test_it_ends_when_the_container_is_stopped(container: Container) -> None:
    container.process.terminate()
    assert container.process.wait(timeout=60) == 0, container.log.read_text()
