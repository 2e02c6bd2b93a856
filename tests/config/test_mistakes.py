"""Every mistake a person can make in these files, and the line that tells them what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.load import load
from gateway.core.errors import ConfigError

CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
GATEWAY = """\
{head}models:
  demo:
    template: {template}
{more}    targets:
      - {{{target}}}
"""
MODEL = {"template": "plain", "target": 'speaks: completions, url: "http://127.0.0.1:8101/v1"'}


def ended(text: str, indent: str = "") -> str:
    """The text's lines, indented, the last one with its end; an empty text has no line."""
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def changed(case: Mapping[str, Any]) -> dict[str, str]:
    """The files of a case.

    ``head`` stands before ``models`` in gateway.yaml; ``template``, ``more`` and ``target`` are settings of its model;
    ``policy`` and ``keys`` are the texts of the model's policy and of the key file; ``files`` are others.
    """
    more = "policy: mine" if "policy" in case else case.get("more", "")
    head = "keys: {file: keys.yaml}" if "keys" in case else case.get("head", "")
    named = {"policies/mine.yaml": case.get("policy"), "keys.yaml": case.get("keys"), **case.get("files", {})}
    gateway = GATEWAY.format(**{**MODEL, **case, "head": ended(head), "more": ended(more, "    ")})
    return {"gateway.yaml": gateway, **{name: ended(text) for name, text in named.items() if text is not None}}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_answered_with_its_place_and_a_way_out(
    name: str,
    write: Callable[[Mapping[str, str]], Path],
) -> None:
    says = CASES[name]["says"]
    with pytest.raises(ConfigError) as caught:
        load(write(changed(CASES[name])), {})
    assert [str(problem) for problem in caught.value.problems] == ([says] if isinstance(says, str) else says)
    assert "hunter2" not in str(caught.value)


def test_all_problems_of_all_files_come_at_once_in_the_order_of_files_and_lines(
    write: Callable[[Mapping[str, str]], Path],
) -> None:
    files: dict[str, Any] = {
        "gateway.yaml": (
            "server: {port: none}\nkeys: {file: keys.yaml}\nmodels:\n  demo:\n    template: plian\n"
            "    policy: mine\n    targets: [{speaks: completions}]\n  other: {template: chat, targets: []}\n"
        ),
        "keys.yaml": "ci: {}\n",
        "policies/mine.yaml": "params: {unknown: maybe}\nrecord: {}\n",
    }
    with pytest.raises(ConfigError) as caught:
        load(write(files), {"GATEWAY_SERVER__DRAIN": "soon"})
    places = [str(problem).partition(": ")[0] for problem in caught.value.problems]
    assert places == [
        "gateway.yaml:1 server.port",
        "gateway.yaml:5 models.demo.template",
        "gateway.yaml:7 models.demo.targets[0].url",
        "gateway.yaml:8 models.other.targets",
        "keys.yaml:1 ci.sha256",
        "policies/mine.yaml:1 params.unknown",
        "policies/mine.yaml:2 record",
        "environment GATEWAY_SERVER__DRAIN",
    ]
