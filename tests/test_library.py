"""The public names, and the examples of docs/library.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

import gateway
from tests.support.serving import ROOT

USER = {"role": "user", "content": "1+1=?"}
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_page_run() -> None:
    pytest.importorskip("tokenizers")
    with chdir(ROOT):
        exec("\n".join(EXAMPLES), {})


def test_every_public_name_can_be_imported() -> None:
    assert set(gateway.__all__) == {"__version__", *gateway._PLACES}
    assert all(getattr(gateway, name) is not None for name in gateway.__all__)
    with pytest.raises(AttributeError, match="no attribute 'render'"):
        gateway.render  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, gateway; print(sorted(name for name in sys.modules if name.split('.')[0] == 'gateway'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout.strip() == "['gateway']"


def test_a_template_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text('round: [{role: HUMAN, begin: "Q: ", end: "\\n"}, {role: BOT, begin: "A:", generate: true}]\n')
    assert gateway.load_template(path).render([USER]).text == "Q: 1+1=?\nA:"
    assert gateway.load_template(str(path)).spec.name == "mine"


def test_a_message_template_renders_messages() -> None:
    prompt = gateway.load_template("chat").render([USER])
    assert (prompt.text, prompt.messages, prompt.segments) == ("", (USER,), ())


def test_a_stop_of_the_request_cuts_the_answer() -> None:
    template = gateway.load_template("internlm")
    assert template.render([USER], stop=["\n"]).stops == ("<eoa>", "\n")
    assert template.parse("2\n3<eoa>", [USER], stop=["\n"]).content == "2"


def test_the_finish_reason_of_the_engine_is_kept() -> None:
    answer = gateway.load_template("internlm").parse("2", [USER], finish_reason="length")
    assert (answer.content, answer.finish_reason) == ("2", "length")


@pytest.mark.parametrize(
    ("fields", "param"), [({"stop": [""]}, "stop"), ({"temperature": 3}, "temperature"), ({"tools": [{}]}, "tools")]
)
def test_an_invalid_field_raises_the_error_of_the_http_api(fields: dict[str, object], param: str) -> None:
    with pytest.raises(gateway.GatewayError) as caught:
        gateway.load_template("internlm").render([USER], **fields)
    assert caught.value.param == param


def test_an_unknown_template_is_a_config_error() -> None:
    with pytest.raises(gateway.ConfigError, match='did you mean "internlm"'):
        gateway.load_template("internlmm")


def test_the_package_is_typed() -> None:
    assert os.path.exists(ROOT / "gateway" / "py.typed")
