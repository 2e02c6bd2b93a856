"""The pages in Debian's Chromium, driven by Playwright, with axe-core. See ``tests/viewer/browser``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.serving import ROOT, Files, Gateway, gateway, write_files
from tests.support.world import key_file
from tests.viewer.browser.pictures import entrance, visited
from tests.viewer.browser.world import FILES as PICTURED
from tests.viewer.browser.world import open_config, viewing, write_runs

BROWSER = ROOT / "tests/viewer/browser"
PYTHON = ROOT / ".venv-browser/bin/python"
CHROMIUM = shutil.which("chromium")
MISSING = [str(path) for path in (PYTHON, ROOT / ".venv-browser/.ready") if not path.exists()]
JOURNEYS = re.findall(r"^    (\w+),$", (BROWSER / "journeys.py").read_text("utf-8").partition("JOURNEYS = (")[2], re.M)
PAGES = re.findall(r"^    \"([\w-]+)\": \(\"[\w-]+\", \D", (BROWSER / "photograph.py").read_text("utf-8"), re.MULTILINE)
SECONDS = 240
"""The limit for all journeys, which take less than 60 on a quiet machine."""

pytestmark = [
    pytest.mark.timeout(900),  # a visit of all pages takes 100 s on a quiet machine and 400 s on a busy one
    pytest.mark.skipif(
        CHROMIUM is None or bool(MISSING),
        reason=f"tests/viewer/browser/install installs Chromium and Playwright (missing: {MISSING or 'chromium'})",
    ),
]

HOSTILE = "<img src=x onerror=ran()><script>document.title='ran'</script>"
FILES: Files = {
    "prompts": ROOT / "prompts",
    "hello.yaml": "[Hello, {finish: stop}]",
    "hostile.yaml": json.dumps([HOSTILE, {"finish": "stop"}]),
    "broken.yaml": "[{error: upstream_error}]",
    "empty.yaml": "[{finish: stop}]",
    "slow.yaml": "[{pause: 2}, Once, {pause: 60}, ' upon', {finish: stop}]",
    "many.yaml": json.dumps([*[f"word {number} " for number in range(20_000)], {"finish": "stop"}]),
    "policies/full.yaml": "record: full\n",
    "keys.yaml": key_file({"gk_some": "models: [open-*]", "gk_all": "models: ['*']"}),
}
DEMO = f"policy: full, targets: [{{speaks: embedded, path: {json.dumps(str(ROOT / 'demo/model'))}}}]"
OPEN = f"""
recordings: {{path: calls.sqlite}}
models:
  demo: {{template: sft-demo, description: Adds numbers., {DEMO}}}
  wrong-template: {{template: chatml, {DEMO}}}
  messages: {{template: chat, policy: full, targets: [{{speaks: scripted, script: hello.yaml}}]}}
  hostile: {{template: chatml, policy: full, targets: [{{speaks: scripted, script: hostile.yaml}}]}}
  broken: {{template: chatml, policy: full, targets: [{{speaks: scripted, script: broken.yaml}}]}}
  long: {{template: chatml, targets: [{{speaks: scripted, script: many.yaml}}]}}
  empty: {{template: chatml, targets: [{{speaks: scripted, script: empty.yaml}}]}}
  slow: {{template: chatml, targets: [{{speaks: scripted, script: slow.yaml}}]}}
"""
KEYED = """
keys: {file: keys.yaml}
recordings: {path: calls.sqlite}
models:
  open-a: {template: chatml, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  secret: {template: chatml, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
"""
SUMS = [(one, other) for one in range(1, 9) for other in (2, 35, 61)]


def record(served: Gateway) -> None:
    """Record two runs of the same rows, and calls with hostile texts."""
    for run, model in (("monday", "demo"), ("tuesday", "wrong-template")):
        for number, (one, other) in enumerate(SUMS):
            headers = {"x-gateway-run": run, "x-gateway-row": f"row-{number}"}
            body = {"model": model, "messages": [{"role": "user", "content": f"{one}+{other}=?"}], "max_tokens": 8}
            assert served.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    headers = {"x-gateway-run": "hostile", "x-gateway-row": HOSTILE}
    body = {"model": "hostile", "messages": [{"role": "user", "content": HOSTILE}], "user": HOSTILE}
    assert served.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    assert served.chat("broken", "hello").status_code == 502
    assert served.chat("messages", "hello").status_code == 200
    assert served.wait_until_idle()
    for recorder in served.runtime.resources.recorders.values():
        recorder.flush().result()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Journey → its error, or None."""
    folders = [tmp_path_factory.mktemp(name) for name in ("open", "keyed", "view")]
    write_files(folders[2], {"gateway.yaml": open_config(), **PICTURED})
    write_runs(folders[2], "monday", "wednesday")
    with (
        gateway(folders[0], OPEN, files=FILES) as served,
        gateway(folders[1], KEYED, files=FILES) as keyed,
        viewing(folders[2], "monday.jsonl", "wednesday.jsonl", "--score", "exact") as view,
    ):
        record(served)
        given = {
            "chromium": CHROMIUM,
            "open": served.root,
            "keyed": keyed.root,
            "view": view,
            "entrance": entrance(served),
            "hostile": [
                "/viewer/recordings?model=hostile",
                "/viewer/runs/rows?run=hostile",
                "/viewer/runs",
                *[f"/viewer/recordings/{number}" for number in (len(SUMS) * 2 + 1, len(SUMS) * 2 + 2)],
            ],
        }
        command = [str(PYTHON), str(BROWSER / "journeys.py"), json.dumps(given)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert found, ended.stderr
    print(ended.stderr, *[f"{one['journey']}: {one['seconds']:.1f} s" for one in found], sep="\n")
    return {one["journey"]: one["error"] for one in found}


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_person_can(journey: str, results: dict[str, str | None]) -> None:
    assert results[journey] is None, results[journey]


@pytest.fixture(scope="module")
def errors() -> dict[str, list[str]]:
    """Page of the pictures → its errors."""
    return {one["page"]: one["errors"] for one in visited("", axe=True)}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_is_accessible_in_both_widths_and_colour_schemes(page: str, errors: dict[str, str]) -> None:
    assert not errors[page]
