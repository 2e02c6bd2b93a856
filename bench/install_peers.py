"""Installs each peer once, into a folder of its own under the cache.

Nothing is installed into the operating system; Debian's nginx package is only unpacked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import MeasurementError

TIMEOUT = 600.0
"""Seconds for one installation."""
MARKER = ".installed"
"""File that holds the version specifier of a complete installation."""


def python_packages(folder: Path, spec: str) -> Path:
    """Install ``spec`` into a virtual environment; returns its ``bin`` folder."""
    bin_folder = folder / "venv" / "bin"
    if not _is_installed(folder, spec):
        uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
        if uv:
            _run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder / "venv")], folder)
            _run([uv, "pip", "install", "-q", "--python", str(bin_folder / "python"), spec], folder)
        else:
            _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], folder)
            _run([str(bin_folder / "python"), "-m", "pip", "install", "-q", spec], folder)
        _mark_installed(folder, spec)
    return bin_folder


def node_package(folder: Path, spec: str) -> Path:
    """Install ``spec`` with npm; returns ``node_modules``."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise MeasurementError("node or npm is not installed")
    if not _is_installed(folder, spec):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}", encoding="ascii")
        _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", spec], folder)
        _mark_installed(folder, spec)
    return folder / "node_modules"


def nginx(folder: Path) -> Path:
    """The nginx binary: an installed one, or the one of Debian's package, unpacked."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found:
        return Path(found)
    binary = folder / "root" / "usr" / "sbin" / "nginx"
    if not binary.exists():
        if not shutil.which("apt-get"):
            raise MeasurementError("nginx is not installed, and there is no apt-get to download it")
        folder.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", "-qq", "nginx"], folder)
        package = next(folder.glob("nginx_*.deb"))
        _run(["dpkg-deb", "-x", str(package), "root"], folder)
    if not binary.exists():
        raise MeasurementError("the nginx package of this release contains no binary; install nginx manually")
    return binary


def _is_installed(folder: Path, spec: str) -> bool:
    marker = folder / MARKER
    return marker.exists() and marker.read_text(encoding="utf-8") == spec


def _mark_installed(folder: Path, spec: str) -> None:
    (folder / MARKER).write_text(spec, encoding="utf-8")


def _run(command: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{Path(command[0]).name} took longer than {TIMEOUT:.0f} s") from None
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise MeasurementError(f"{Path(command[0]).name} {command[1]} failed: {' '.join(tail)[-200:]}")
