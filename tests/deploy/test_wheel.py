"""The built wheel works in an empty folder, with the templates and policies inside it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from metatemplate.version import VERSION
from tests.support.ports import free_port
from tests.support.serving import eventually

ROOT = Path(__file__).resolve().parents[2]

CONFIG = """\
server: {port: 0}
models:
  my-model:
    template: internlm
    policy: eval
    targets: [{speaks: completions, url: "http://127.0.0.1:9/v1"}]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the hatchling of the test dependencies: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    _python(["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel and nothing else."""
    target = tmp_path_factory.mktemp("site")
    _python(["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel)], target)
    return target


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder with a gateway.yaml and no templates or policies beside it."""
    (tmp_path / "gateway.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("folder", ["meta_templates", "policies", "prompts", "demo/model", "docs"])
def test_the_wheel_carries_every_file_of_the_data_folders(wheel: Path, folder: str) -> None:
    place = "metatemplate/presets" if folder == "meta_templates" else f"gateway/data/{folder}"
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(f"{place}/")}
    files = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert packed == {f"{place}/{path}" for path in files}


def test_the_wheel_carries_the_demo_and_the_third_party_notices(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    for name in ("gateway.yaml", "demo/sums.jsonl"):
        assert archive.read(f"gateway/data/{name}") == (ROOT / name).read_bytes()
    assert [name for name in archive.namelist() if name.endswith("licenses/THIRD_PARTY_NOTICES.md")]


def test_the_wheel_carries_every_module_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {
        str(path.relative_to(ROOT)) for name in ("gateway", "metatemplate") for path in (ROOT / name).rglob("*.py")
    }
    assert modules == {name for name in names if name.endswith(".py")}
    assert not [name for name in names if "__pycache__" in name]


def test_an_installed_wheel_finds_its_templates_and_policies(installed: Path, empty: Path) -> None:
    where = _python(["-c", "import gateway; print(gateway.__file__)"], empty, installed)
    assert Path(where.strip()).is_relative_to(installed)
    (row,) = json.loads(_python(["-m", "gateway", "models", "--json"], empty, installed))
    assert (row["name"], row["template"], row["policy"]) == ("my-model", "internlm", "eval")


@pytest.mark.parametrize("name", ["gateway", "meta-gateway"])
def test_an_installed_wheel_has_its_command_under_two_names(installed: Path, empty: Path, name: str) -> None:
    printed = _python([str(installed / "bin" / name), "--version"], empty, installed)
    assert printed == f"gateway {VERSION}\n"


def test_an_installed_wheel_prints_its_pages(installed: Path, empty: Path) -> None:
    printed = _python(["-m", "gateway", "docs", "templates"], empty, installed)
    assert printed == (ROOT / "docs/templates.md").read_text(encoding="utf-8")


def test_an_installed_wheel_serves_in_an_empty_folder(installed: Path, empty: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve"],
        cwd=empty,
        env=_environment(installed),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        greeting = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        assert greeting, "serve did not say where it listens"
        with urllib.request.urlopen(f"{greeting[0]}/health/ready", timeout=60) as answer:
            assert json.load(answer) == {"status": "ready"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_an_installed_wheel_serves_the_demo_and_asks_it(installed: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "stderr.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "demo", "--port", str(port)],
            cwd=tmp_path,
            env=_environment(installed) | {"TMPDIR": str(tmp_path)},
            stderr=stderr,
        )
    try:
        assert eventually(lambda: b"serving demo" in log.read_bytes() or process.poll() is not None)
        asked = ["-m", "gateway", "ask", "demo", "1+1=?", "--url", f"http://127.0.0.1:{port}"]
        assert _python(asked, tmp_path, installed) == "2\n", log.read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert not [*tmp_path.glob("gateway-demo-*")]
    finally:
        process.kill()
        process.wait()


def _environment(installed: Path | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "PYTHON"))}
    return kept | ({"PYTHONPATH": str(installed)} if installed else {})


def _python(arguments: list[str], cwd: Path, installed: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=_environment(installed), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
