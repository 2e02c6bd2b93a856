"""A small valid configuration, to be changed file by file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.serving import write_files

GATEWAY = """\
models:
  demo:
    template: plain
    targets:
      - speaks: completions
        url: "http://127.0.0.1:8101/v1"
"""

PLAIN = """\
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: ", end: "\\n", generate: true}
examples:
  - messages: [{role: user, content: hi}]
    prompt: "Q: hi\\nA: "
"""

MESSAGES = """\
kind: meta
round:
  - {role: HUMAN, api_role: HUMAN}
  - {role: BOT, api_role: BOT, generate: true}
"""

VALID = {"gateway.yaml": GATEWAY, "meta_templates/plain.yaml": PLAIN, "meta_templates/api-only.yaml": MESSAGES}

Write = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the valid configuration with some files replaced or added; gives the path of ``gateway.yaml``."""

    def writer(changed: Mapping[str, str]) -> Path:
        write_files(tmp_path, {**VALID, **changed})
        return tmp_path / "gateway.yaml"

    return writer
