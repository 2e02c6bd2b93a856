"""The benchmark suite runs with minimal load; no measured value is checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.rendering.python_build import DifferentPython, build_of, check_same_build, this_build

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the suite reads /proc and pins cores")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints the name of another Python build, for any arguments."""
    program = tmp_path_factory.mktemp("other") / "python"
    program.write_text("#!/bin/sh\necho 'CPython 2.7.18 (default)'\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory, other_python: Path) -> Path:
    """The results of a run of the gateway alone, with the path of a Python for a reference package."""
    out = tmp_path_factory.mktemp("bench") / "smoke.json"
    done = bench("--smoke", "--seconds", "0.2", "--lazyllm", str(other_python), "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


MEASURED = {
    # scenario: metrics of the gateway that must be present
    "nonstream@1": {"requests_per_second", "p50_ms", "p99_ms", "cpu_us", "upstream_per_request"},
    "nonstream@32": {"requests_per_second", "p50_ms", "p99_ms", "cpu_us", "upstream_per_request"},
    "stream@128": {"events_per_second", "cpu_us", "added_first_p50_ms", "delay_p99_ms"},
    "idle@2000": {"kb_per_stream", "freed_ms", "rss_mb"},
    "startup": {"ready_seconds", "rss_mb"},
    "renders": {"sft-demo x1", "moss x200"},
}


@pytest.mark.parametrize("scenario", MEASURED)
def test_the_gateway_is_measured(smoke: Path, scenario: str) -> None:
    results = json.loads(smoke.read_text(encoding="utf-8"))
    (metrics,) = results["rounds"][scenario]["gateway"]
    assert MEASURED[scenario] <= metrics.keys()


def test_every_request_reaches_the_upstream(smoke: Path) -> None:
    results = json.loads(smoke.read_text(encoding="utf-8"))
    (metrics,) = results["rounds"]["nonstream@32"]["gateway"]
    assert metrics["errors"] == 0
    assert metrics["upstream_per_request"] >= 0.99


def test_the_table_has_a_row_for_each_system(smoke: Path) -> None:
    table = smoke.with_suffix(".md").read_text(encoding="utf-8")
    section = table.partition("## nonstream@32")[2].partition("##")[0]
    assert [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")] == [
        "`direct`",
        "`gateway`",
    ]


def test_the_plot_is_an_svg(smoke: Path) -> None:
    assert ElementTree.parse(smoke.with_suffix(".svg")).getroot().tag.endswith("svg")


WRONG = {
    "an unknown scenario": (["--only", "nostream"], "nostream"),
    "an unknown system": (["--peers", "gatway"], "gatway"),
    "too many rounds": (["--rounds", "1000"], "--rounds"),
    "a folder without a checkout": (["--checkout", "before=/nowhere"], "no checkout of the gateway"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, named = WRONG[case]
    assert exit_code(*arguments) == 2
    assert named in capsys.readouterr().err


def exit_code(*arguments: str) -> object:
    """The exit code of a command that measures nothing, run in this process."""
    try:
        return main(list(arguments))
    except SystemExit as ended:
        return ended.code


def test_a_reference_package_on_another_python_build_is_refused_before_the_run(
    other_python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("--only", "renders", "--lazyllm", str(other_python)) == 2
    said = capsys.readouterr().err
    assert f"lazyllm runs on CPython 2.7.18 (default), the gateway on {this_build()}" in said
    assert "--any-python" in said


def test_the_table_names_different_python_builds(other_python: Path, tmp_path: Path) -> None:
    out = tmp_path / "odd.json"
    arguments = [
        "--smoke",
        "--only",
        "renders",
        "--peers",
        "gateway,lazyllm",
        "--lazyllm",
        str(other_python),
        "--any-python",
    ]
    arguments += ["--out", str(out)]
    assert bench(*arguments).returncode == 0
    table = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "- `lazyllm` ran on CPython 2.7.18 (default): **another build**" in table
    failures = json.loads(out.read_text(encoding="utf-8"))["failures"]
    assert failures == {"renders": {"lazyllm": "the last line of its output is not JSON"}}


def test_the_python_of_a_system_that_is_not_measured_is_not_started(smoke: Path) -> None:
    assert "CPython 2.7" not in smoke.with_suffix(".md").read_text(encoding="utf-8")


def test_the_same_python_is_the_same_build() -> None:
    check_same_build("lazyllm", build_of(sys.executable))
    with pytest.raises(DifferentPython, match="the Python build of /nowhere/python is unknown"):
        build_of("/nowhere/python")


def test_another_checkout_is_measured_beside_this_one(tmp_path: Path) -> None:
    out = tmp_path / "two.json"
    arguments = ["--smoke", "--only", "nonstream@1", "--checkout", f"before={ROOT}", "--out", str(out)]
    assert bench(*arguments).returncode == 0
    (before,) = json.loads(out.read_text(encoding="utf-8"))["rounds"]["nonstream@1"]["gateway-before"]
    assert before["requests_per_second"] > 0


def test_help_has_examples_and_list_prints_scenarios_and_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    assert "examples:" in capsys.readouterr().out
    assert exit_code("--list") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("nonstream@256", "sglang-router", "litellm-proxy", "gateway+keys=1000"))
