"""An installation that was interrupted goes on with what it has compiled, and leaves no process behind."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path

import pytest

from tests.support.engines.environment import InstallFailed, Packages, run

BACKEND = '''
"""Compiles three objects into the build folder; the first try is killed before the second object."""
import os
import signal
import zipfile
from pathlib import Path


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build = Path(config_settings["build-dir"])
    build.mkdir(exist_ok=True)
    for name in ("a.o", "b.o", "c.o"):
        if name == "b.o" and not (build / "killed").exists():
            (build / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not (build / name).exists():
            (build / name).write_text(os.environ["TRY"])
    wheel = "compiled-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        archive.writestr("compiled.py", f"OBJECTS = {[(build / f'{name}.o').read_text() for name in 'abc']}")
        archive.writestr("compiled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: compiled\\nVersion: 1.0\\n")
        archive.writestr("compiled-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        archive.writestr("compiled-1.0.dist-info/RECORD", "")
    return wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / "compiled-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: compiled\\nVersion: 1.0\\n")
    return folder.name
'''
SOURCE = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "PKG-INFO": "Metadata-Version: 2.1\nName: compiled\nVersion: 1.0\n",
}


def test_a_killed_installation_goes_on_with_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "compiled-1.0.tar.gz", "w:gz") as archive:
        for name, text in SOURCE.items():
            member = tarfile.TarInfo(f"compiled-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    packages, folder = Packages(("compiled==1.0",), build_tools=("pip",)), tmp_path / "engine"  # pip is there already
    monkeypatch.setenv("TRY", "first")
    with pytest.raises(InstallFailed):
        packages.install(folder)
    assert not packages.is_installed(folder)
    monkeypatch.setenv("TRY", "second")
    packages.install(folder)
    assert packages.is_installed(folder)
    [module] = folder.glob("lib/*/site-packages/compiled.py")
    assert module.read_text() == "OBJECTS = ['first', 'second', 'second']"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compiled-1.0.tar.gz", "engine"]


def test_a_command_without_time_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """``run`` reads the output of the command to its end, so it returns when the last process has ended."""
    with pytest.raises(InstallFailed, match="the next try resumes"):
        run(["sh", "-c", "sleep 100000 & wait"], tmp_path, time.monotonic() + 0.2)
