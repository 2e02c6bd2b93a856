"""The JSON Schemas: they accept what the gateway accepts, and refuse what an editor can see."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.config.schema.json_schema import json_schema, settings
from gateway.config.schema.settings import FILES as SETTINGS_FILES
from gateway.config.schema.settings import GATEWAY, KEYS_FILE, POLICY, PROMPT, TEMPLATE
from gateway.config.schema.validation import check
from metatemplate.files.yaml import YamlDocument, dotted
from tests.test_docs import EXAMPLES, ROOT

SCHEMAS = {file: json_schema(file) for file in (GATEWAY, POLICY, KEYS_FILE, TEMPLATE, PROMPT)}
FILES = {
    GATEWAY: [ROOT / "gateway.yaml", ROOT / "deploy/gateway.yaml"],
    POLICY: sorted((ROOT / "policies").glob("*.yaml")),
    KEYS_FILE: [],
    TEMPLATE: sorted((ROOT / "meta_templates").glob("*.yaml")),
    PROMPT: sorted(ROOT.glob("**/prompts/*.yaml")),
}


@pytest.mark.parametrize("file", SCHEMAS)
def test_check_jsonschema_accepts_every_file_of_the_repository(file: str, tmp_path: Path) -> None:
    paths = list(FILES[file])
    for number, (name, text) in enumerate(EXAMPLES):  # those of the page on the configuration
        if Path(name).match(file):
            paths.append(tmp_path / f"{number}.yaml")
            paths[-1].write_text(text, encoding="utf-8")
    assert paths
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMAS[file]), encoding="utf-8")
    program = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(tmp_path / "schema.json")]
    ended = subprocess.run([*program, *paths], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 8, 65535, 65536, 1.5, -1, "", "a", "auto", "*", "0s", "250ms", "1.5h", "5", "20%", "0.5 %",
    "101%", "4MiB", "1 GiB", "/health", "/a b", "health", "127.0.0.1", "::1", "[::1]", "0.0.0.0", "localhost:9464",
    "[::1]:80", "http://127.0.0.1:8101/v1", "HTTPS://example.org/v1", "ftp://example.org", "https://chat.example.org",
    "redis://127.0.0.1:6379/0", "REDISS://h", "unix:///tmp/s", "env:NAME", "file:/a", "0" * 64, "F" * 64, "0" * 63,
    "2027-06-30", "20270630", "2027-06-30T12:00:00Z", "allow", "refuse", "forward", "vllm", "chat", "litellm",
    "round_robin", [], ["a"], ["*"], [1], ["https://chat.example.org"], {}, {"temperature": 0}, {"max_tokens": "a"},
)  # fmt: skip


SETTINGS = {(file, name): part for file in SETTINGS_FILES for name, part in settings(SCHEMAS[file])}


def accepts(file: str, name: str, value: Any) -> bool:
    """Whether the gateway accepts the value of one setting."""
    path: list[str | int] = [{"[]": 0}.get(step, step) for step in re.findall(r"\[\]|[^.\[\]]+", name)]
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [value]
    document = YamlDocument(file, [], value)
    check(document, file)
    return dotted(tuple(path)) not in [problem.key for problem in document.problems]


@pytest.mark.parametrize(("file", "name"), SETTINGS)
def test_the_schema_of_a_setting_accepts_its_values_and_refuses_others(file: str, name: str) -> None:
    validator = jsonschema.Draft7Validator(dict(SETTINGS[file, name]))
    words = SETTINGS[file, name].get("enum", ())
    read = [value for value in (*VALUES, *words) if accepts(file, name, value)]
    assert read
    assert [value for value in read if not validator.is_valid(value)] == []
    assert not all(map(validator.is_valid, VALUES))


REFUSED = {  # file, text, words of the message
    "an unknown setting": (GATEWAY, "server: {prot: 8000}", "'prot' was unexpected"),
    "a port that is a text": (GATEWAY, "server: {port: '8000'}", "'8000' is not of type 'integer'"),
    "a model without a template": (GATEWAY, "models: {a: {targets: []}}", "'template' is a required property"),
    "targets that are a mapping": (GATEWAY, "models: {a: {template: b, targets: {}}}", "is not of type 'array'"),
    "an unknown kind of target": (GATEWAY, "models: {a: {template: b, targets: [{speaks: grpc}]}}", "not one of"),
    "a target without its address": (
        GATEWAY,
        "models: {a: {template: b, targets: [{speaks: chat}]}}",
        "'url' is a required property",
    ),
    "a setting of another kind of target": (
        GATEWAY,
        "models: {a: {template: b, targets: [{speaks: embedded, path: c, url: 'http://d'}]}}",
        "'null'",
    ),
    "a duration without its unit": (POLICY, "delivery: {timeout: {total: 60}}", "60 is not of type 'string'"),
    "a word that is not a choice": (POLICY, "params: {unknown: ignore}", "'ignore' is not one of"),
    "a misspelled key of a role": (TEMPLATE, "round: [{role: A, bgin: B}]", "not valid under any"),
    "a misspelled key of a template": (TEMPLATE, "{begn: A, round: []}", "'begn' was unexpected"),
    "a key of another kind of template": (TEMPLATE, "{kind: jinja, round: []}", "'round' was unexpected"),
    "an unknown format of tools": (TEMPLATE, "{round: [], tools: {parser: xml}}", "not valid under any"),
    "a retriever that does not exist": (PROMPT, "retriever: {kind: nearest}", "not valid under any"),
    "a misspelled key of a prompt": (PROMPT, "promt_template: {}", "'promt_template' was unexpected"),
    "a key without its digest": (KEYS_FILE, "ci: {models: [a]}", "'sha256' is a required property"),
}


@pytest.mark.parametrize(("file", "text", "message"), REFUSED.values(), ids=REFUSED)
def test_an_editor_shows_a_mistake(file: str, text: str, message: str) -> None:
    found = [error.message for error in jsonschema.Draft7Validator(SCHEMAS[file]).iter_errors(yaml.safe_load(text))]
    assert any(message in one for one in found), found


def test_empty_sections_are_accepted_as_the_gateway_does() -> None:
    for text in ("", "server:", "models: {a: {template: b, targets: }}", "server: {admin: }"):
        jsonschema.validate(yaml.safe_load(text), SCHEMAS[GATEWAY])


def test_a_setting_is_described_with_its_default() -> None:
    port = SCHEMAS[GATEWAY]["properties"]["server"]["properties"]["port"]
    assert port == {
        "title": "whole number from 0 to 65535",
        "type": "integer",
        "minimum": 0,
        "maximum": 65535,
        "default": 8000,
        "description": "The port to listen on; 0 selects any free port.",
    }
