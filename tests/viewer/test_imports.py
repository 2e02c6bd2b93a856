"""What a server imports for its pages, and when. Each case is a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving import ROOT, WAIT_SECONDS

PROGRAM = """
import json, sys
from pathlib import Path
from tests.support.serving import gateway
from tests.viewer.browsing import open_recordings
from tests.support.world import HELLO

CONFIG = '''
server: {viewer: %s}
recordings: {path: calls.sqlite}
models: {a: {template: chat, policy: recorded, targets: [{speaks: scripted, script: hello.yaml}]}}
'''
PAGES = ("", "/models", "/prompt", "/compare", "/recordings", "/recordings/x", "/runs", "/runs/report?run=r")

def loaded():
    return {name for name in sys.modules if name.split(".")[0] in ("gateway", "jinja2", "sqlite3")}

first, *later = sys.argv[2:]
files = {**HELLO, "policies/recorded.yaml": "record: full"}
with gateway(Path(sys.argv[1]), CONFIG % first, files=files) as served:
    served.http.get("/").raise_for_status()
    for value in later:
        (served.folder / "gateway.yaml").write_text(CONFIG % value)
        assert served.reload()
    built = loaded()
    if [first, *later][-1] == "on":
        open_recordings(served)
    statuses = {page: served.http.get(f"/viewer{page}").status_code for page in PAGES}
    print(json.dumps([sorted(built), sorted(loaded() - built), statuses]))
"""


def run(folder: Path, *settings: str) -> tuple[list[str], list[str], dict[str, int]]:
    """The modules before the first page below ``/viewer``, those that the pages have added, and the pages' statuses."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *settings],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    built, added, statuses = json.loads(ended.stdout)
    return built, added, statuses


@pytest.mark.parametrize("settings", [("on",), ("off", "on")], ids=["at the start", "by a reload"])
def test_pages_are_imported_before_the_first_request(tmp_path: Path, settings: tuple[str, ...]) -> None:
    built, added, statuses = run(tmp_path, *settings)
    assert {"gateway.viewer.runs.pages", "gateway.viewer.prompt.pages", "gateway.evaluate.analysis.why"} <= set(built)
    assert added == []
    assert set(statuses.values()) == {200, 404}
    assert [page for page, status in statuses.items() if status == 404] == ["/recordings/x", "/runs/report?run=r"]


def test_without_pages_only_the_list_of_the_models_is_imported(tmp_path: Path) -> None:
    built, added, statuses = run(tmp_path, "off")
    assert {name for name in built if name.startswith(("gateway.viewer.", "gateway.evaluate.analysis"))} == {
        f"gateway.viewer.{name}"
        for name in (
            "access",
            "exact_text",
            "home",
            "page",
            "page_threads",
            "templating",
            "viewer",
        )
    }
    assert added == []
    assert set(statuses.values()) == {404}
