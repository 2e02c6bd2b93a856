"""The performance suite runs: tiny counts, the gateway only, no result is checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.interpreter import OtherPython, build, build_of, check_same

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the suite reads /proc and pins cores")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "smoke.json"
    done = bench("--smoke", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


MEASURED = {
    # scenario: what must have been measured of the gateway
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
    (numbers,) = results["rounds"][scenario]["gateway"]
    assert MEASURED[scenario] <= numbers.keys()


def test_every_call_reaches_the_upstream(smoke: Path) -> None:
    results = json.loads(smoke.read_text(encoding="utf-8"))
    (numbers,) = results["rounds"]["nonstream@32"]["gateway"]
    assert numbers["errors"] == 0
    assert numbers["upstream_per_request"] >= 0.99


def test_the_table_has_a_row_for_each_subject(smoke: Path) -> None:
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
    "an unknown subject": (["--peers", "gatway"], "gatway"),
    "too many rounds": (["--rounds", "1000"], "--rounds"),
    "a checkout that is none": (["--before", "/nowhere"], "no checkout of the gateway"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(case: str) -> None:
    arguments, named = WRONG[case]
    done = bench(*arguments)
    assert done.returncode == 2
    assert named in done.stderr


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Something that names another build, whatever it is asked."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'CPython 2.7.18 (default)'\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def test_an_original_on_another_python_ends_the_run_before_it_begins(stranger: Path) -> None:
    done = bench("--only", "renders", "--lazyllm", str(stranger))
    assert done.returncode == 2
    assert f"lazyllm runs on CPython 2.7.18 (default), the gateway on {build()}" in done.stderr
    assert "--any-python" in done.stderr


def test_who_compares_pythons_anyway_reads_of_it_in_the_table(stranger: Path, tmp_path: Path) -> None:
    out = tmp_path / "odd.json"
    asked = ["--smoke", "--only", "renders", "--peers", "gateway,lazyllm", "--lazyllm", str(stranger), "--any-python"]
    asked += ["--out", str(out)]
    assert bench(*asked).returncode == 0
    table = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "- `lazyllm` ran on CPython 2.7.18 (default): **another build**" in table
    unfit = json.loads(out.read_text(encoding="utf-8"))["unfit"]
    assert unfit == {"renders": {"lazyllm": "the last line that it printed is not JSON"}}


def test_who_is_not_measured_is_not_asked(stranger: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    asked = ["--smoke", "--only", "renders", "--peers", "gateway", "--lazyllm", str(stranger), "--out", str(out)]
    assert bench(*asked).returncode == 0
    assert "CPython 2.7" not in out.with_suffix(".md").read_text(encoding="utf-8")


def test_the_same_python_is_the_same_build() -> None:
    check_same("lazyllm", build_of(sys.executable))
    with pytest.raises(OtherPython, match="does not say which Python it is"):
        build_of("/nowhere/python")


def test_another_checkout_is_measured_beside_this_one(tmp_path: Path) -> None:
    out = tmp_path / "two.json"
    asked = ["--smoke", "--only", "nonstream@1", "--before", str(ROOT), "--out", str(out)]
    assert bench(*asked).returncode == 0
    (before,) = json.loads(out.read_text(encoding="utf-8"))["rounds"]["nonstream@1"]["gateway-before"]
    assert before["requests_per_second"] > 0


def test_help_has_examples_and_list_names_everything() -> None:
    assert "examples:" in bench("--help").stdout
    listed = bench("--list").stdout
    assert all(name in listed for name in ("nonstream@256", "sglang-router", "litellm-proxy", "gateway+keys=1000"))
