"""Where do the peers come from? Each is installed once, into a throw-away folder of its own under the cache.

Nothing is installed into the system: Debian's nginx is unpacked, not set up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import Unfit

PATIENCE = 600.0
"""Seconds that one installation may take."""
DONE = ".installed"


def python_packages(folder: Path, spec: str) -> Path:
    """A virtual environment with ``spec``; its ``bin``."""
    bin_folder = folder / "venv" / "bin"
    if not _has(folder, spec):
        uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
        if uv:
            _run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder / "venv")], folder)
            _run([uv, "pip", "install", "-q", "--python", str(bin_folder / "python"), spec], folder)
        else:
            _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], folder)
            _run([str(bin_folder / "python"), "-m", "pip", "install", "-q", spec], folder)
        _mark(folder, spec)
    return bin_folder


def node_package(folder: Path, spec: str) -> Path:
    """A folder with ``node_modules``."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise Unfit("node and npm are not on this machine")
    if not _has(folder, spec):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}", encoding="ascii")
        _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", spec], folder)
        _mark(folder, spec)
    return folder / "node_modules"


def nginx(folder: Path) -> Path:
    """nginx's binary: the machine's, or Debian's package unpacked."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found:
        return Path(found)
    binary = folder / "root" / "usr" / "sbin" / "nginx"
    if not binary.exists():
        if not shutil.which("apt-get"):
            raise Unfit("nginx is not on this machine, and there is no apt-get to fetch it with")
        folder.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", "-qq", "nginx"], folder)
        package = next(folder.glob("nginx_*.deb"))
        _run(["dpkg-deb", "-x", str(package), "root"], folder)
    if not binary.exists():
        raise Unfit("Debian's nginx package holds no binary on this release; install nginx by hand")
    return binary


def _has(folder: Path, spec: str) -> bool:
    mark = folder / DONE
    return mark.exists() and mark.read_text(encoding="utf-8") == spec


def _mark(folder: Path, spec: str) -> None:
    (folder / DONE).write_text(spec, encoding="utf-8")


def _run(command: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Unfit(f"{Path(command[0]).name} took longer than {PATIENCE:.0f} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unfit(f"{Path(command[0]).name} {command[1]} failed: {' '.join(words)[-200:]}")
