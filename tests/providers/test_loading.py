"""LiteLLM is loaded only where it is needed; a configuration that cannot load it is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.verbs.check import dry_run
from gateway.config.load import read_configuration
from tests.journeys.process import environment
from tests.support.providers.server import Providers

if importlib.util.find_spec("litellm") is None:
    pytest.skip("the litellm extra is not installed", allow_module_level=True)

CONFIG = """\
models:
  api:
    template: chat
    targets:
      - {{speaks: {speaks}, model: {model}, url: "{url}"}}
"""

CHECK = "from gateway.cli import main; code = main(['check', '--config', {path!r}])"

FIRST_CALL = """
import asyncio, sys
from pathlib import Path
from gateway.assembly import assemble
from gateway.assembly import open_shared_resources
from gateway.config.load import load
from gateway.core.exchange import Exchange
from gateway.telemetry.metrics import Metrics

snapshot = load(Path({path!r}), {{}})
stack = assemble(snapshot, open_shared_resources(Metrics()))
loaded = set(sys.modules)
assert "litellm" in loaded

async def call():
    exchange = Exchange("chat", "req_1", messages=({{"role": "user", "content": "chat"}},))
    backend = stack.routes["api"].backend
    assert backend is not None
    async with backend.open(exchange) as events:
        while await events.next_batch():
            pass

asyncio.run(call())
print(len([name for name in set(sys.modules) - loaded if name.startswith(("litellm", "openai"))]))
"""


def write(folder: Path, *, speaks: str = "litellm", model: str = "openai/tiny", url: str = "http://127.0.0.1:9") -> str:
    path = folder / "gateway.yaml"
    path.write_text(CONFIG.format(speaks=speaks, model=model, url=url), encoding="utf-8")
    return str(path)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)


def test_the_first_call_finds_the_sdk_imported(tmp_path: Path, providers: Providers) -> None:
    """It imports some five hundred modules otherwise, and holds the event loop for as long."""
    ended = run(FIRST_CALL.format(path=write(tmp_path, url=providers.url("openai"))))
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.split()[-1]) < 20


def test_a_configuration_without_litellm_targets_never_imports_it(tmp_path: Path) -> None:
    check = CHECK.format(path=write(tmp_path, speaks="chat"))
    ended = run(f"{check}; import sys; sys.exit(code or 'litellm' in sys.modules)")
    assert ended.returncode == 0, ended.stderr


def test_a_missing_extra_is_a_problem_of_the_line_that_needs_it(tmp_path: Path) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    ended = run(f"import sys; sys.modules['litellm'] = None; {CHECK.format(path=write(tmp_path))}; sys.exit(code)")
    assert ended.returncode == 1
    assert (
        "gateway.yaml:5 models.api.targets[0].speaks: litellm needs the package litellm; run "
        "pip install 'meta-gateway[litellm]'" in ended.stderr
    )


def test_a_model_without_a_provider_is_a_problem_of_its_line(tmp_path: Path) -> None:
    snapshot = read_configuration(Path(write(tmp_path, model="tiny")), {}).snapshot
    assert snapshot is not None
    (problem,) = dry_run(snapshot)
    expected = 'gateway.yaml:5 models.api.targets[0].model: LiteLLM has no provider for "tiny"'
    assert str(problem).startswith(expected)
