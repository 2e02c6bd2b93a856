"""Files become one frozen value, or nothing does."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.config.load import load, read_configuration
from gateway.config.snapshot import (
    AttemptsPolicy,
    DeliveryPolicy,
    MediaPolicy,
    ParamsPolicy,
    PolicySpec,
    ServerSpec,
    TargetSpec,
    TimeoutPolicy,
)
from gateway.core.errors import ConfigError

from .conftest import GATEWAY, PLAIN

Write = Callable[[Mapping[str, str]], Path]
DIGEST = hashlib.sha256(b"gk_test").hexdigest()
CANARY = "sk-canary-0123456789"

FULL = """\
server:
  host: 0.0.0.0
  port: 9000
  workers: 1
  drain: 1500ms
  max_body: 64KiB
  max_in_flight: 8
  allowed_hosts: [Models.example.org, "[::1]"]
  admin: "127.0.0.1:9464"
keys: {file: clients/keys.yaml}
models:
  org/local:
    template: plain
    policy: mine
    description: Two replicas.
    max_model_len: 2048
    tokenizer: tokenizer.json
    targets:
      - {speaks: completions, url: "http://127.0.0.1:8101/v1/", model: base, engine: vllm, adds_bos: true}
      - {speaks: completions, url: "http://127.0.0.1:8102/v1", key: "file:secret.txt"}
  hosted:
    template: chat
    targets: [{speaks: litellm, model: some/model, key: "env:HOSTED_KEY", options: {api_version: "2"}}]
  played:
    template: chat
    targets: [{speaks: scripted, script: play.yaml}]
"""

MINE = """\
description: Ours.
params: {force: {seed: 1}, default: {temperature: 0}, clamp: {max_tokens: 10}, forbid: [tools],
         unknown: reject, explicit: true, max_tokens: 5}
delivery:
  timeout: {connect: 1s, first_token: 2m, idle: 3s, total: 1h}
  retry: {attempts: 2}
  stream_upstream: true
"""

FULL_FILES = {
    "gateway.yaml": FULL,
    "policies/mine.yaml": MINE,
    "clients/keys.yaml": f'ci:\n  sha256: "{DIGEST.upper()}"\n  models: ["org/*"]\n  expires: 2027-06-30\n',
    "secret.txt": CANARY + "\n",
    "tokenizer.json": "{}",
    "play.yaml": "[]",
}


def test_a_full_configuration_becomes_a_snapshot(write: Write) -> None:
    path = write(FULL_FILES)
    home = path.parent
    snapshot = load(path, {"HOSTED_KEY": "hosted"})
    assert snapshot.server == ServerSpec(
        host="0.0.0.0",
        port=9000,
        drain=1.5,
        max_body=65536,
        max_in_flight=8,
        allowed_hosts=("models.example.org", "[::1]"),
        admin="127.0.0.1:9464",
    )
    local = snapshot.models["org/local"]
    assert local.targets == (
        TargetSpec("org/local/0", "completions", "http://127.0.0.1:8101/v1", "base", "vllm", adds_bos=True),
        TargetSpec("org/local/1", "completions", "http://127.0.0.1:8102/v1", "org/local", key=SecretStr(CANARY)),
    )
    assert local.policy == PolicySpec(
        "mine",
        "Ours.",
        ParamsPolicy({"seed": 1}, {"temperature": 0}, {"max_tokens": 10}, ("tools",), (), "reject", True, 5),
        delivery=DeliveryPolicy(
            TimeoutPolicy(connect=1.0, first_token=120.0, idle=3.0, total=3600.0),
            AttemptsPolicy(attempts=2),
            stream_upstream=True,
        ),
    )
    assert (local.description, local.max_model_len, local.tokenizer) == ("Two replicas.", 2048, home / "tokenizer.json")
    assert (local.template.name, local.template.digest) == ("plain", hashlib.sha256(PLAIN.encode()).hexdigest()[:12])
    assert snapshot.models["hosted"].template.kind == "chat"
    assert snapshot.models["hosted"].targets[0].key == SecretStr("hosted")
    assert snapshot.models["hosted"].targets[0].options == {"api_version": "2"}
    assert snapshot.models["played"].targets[0].script == home / "play.yaml"
    (key,) = snapshot.keys
    # A day counts to its end, in UTC.
    assert (key.name, key.sha256, key.models, key.expires) == ("ci", DIGEST, ("org/*",), 1814400000.0)
    named = {"gateway.yaml", "clients/keys.yaml", "meta_templates/plain.yaml", "policies/mine.yaml", "secret.txt"}
    files = read_configuration(path, {"HOSTED_KEY": "hosted"}).files
    assert {str(file.relative_to(home)) for file in files if file.is_relative_to(home)} == named


def test_a_small_configuration_gets_the_defaults(write: Write) -> None:
    snapshot = load(write({}), {})
    assert snapshot.server == ServerSpec()
    assert snapshot.models["demo"].policy.params == ParamsPolicy()
    assert snapshot.models["demo"].policy.delivery == DeliveryPolicy()
    assert snapshot.keys == ()


@pytest.mark.parametrize("name", ["default", "eval", "production"])
def test_a_shipped_policy_loads_where_no_folder_lies_beside_the_file(name: str, write: Write) -> None:
    policy = load(write({"gateway.yaml": GATEWAY + f"    policy: {name}\n"}), {}).models["demo"].policy
    assert policy.name == name
    assert policy.description


def test_a_file_beside_the_configuration_wins_over_a_shipped_one(write: Write) -> None:
    snapshot = load(write({"policies/default.yaml": "params: {max_tokens: 7}\n"}), {})
    assert snapshot.models["demo"].policy.params.max_tokens == 7


def test_the_frozen_mappings_cannot_be_changed(write: Write) -> None:
    snapshot = load(write({}), {})
    with pytest.raises(TypeError):
        snapshot.models["other"] = snapshot.models["demo"]  # type: ignore[index]
    with pytest.raises(TypeError):
        snapshot.models["demo"].policy.params.force["seed"] = 1  # type: ignore[index]


# ---------------------------------------------------------------- the environment

OVERRIDES = {  # variable: (value, setting, what it becomes)
    "GATEWAY_SERVER__PORT": ("9000", "port", 9000),
    "GATEWAY_SERVER__HOST": ("::1", "host", "::1"),
    "GATEWAY_SERVER__DRAIN": ("2m", "drain", 120.0),
    "GATEWAY_SERVER__MAX_BODY": ("1048576", "max_body", 1048576),
    "GATEWAY_SERVER__ALLOWED_HOSTS": ("a.example, b.example", "allowed_hosts", ("a.example", "b.example")),
    "GATEWAY_SERVER__INSECURE_NO_KEYS": ("true", "insecure_no_keys", True),
    "GATEWAY_SERVER__ADMIN": ("127.0.0.1:1", "admin", "127.0.0.1:1"),
    "GATEWAY_SERVER__CORS__ORIGINS": ("https://a.example, *", "cors.origins", ("https://a.example", "*")),
}


@pytest.mark.parametrize("variable", OVERRIDES)
def test_a_variable_wins_over_the_file(variable: str, write: Write) -> None:
    value, setting, expected = OVERRIDES[variable]
    snapshot = load(write({"gateway.yaml": "server: {port: 8001}\n" + GATEWAY}), {variable: value, "GATEWAY_PORT": "x"})
    assert attrgetter(setting)(snapshot.server) == expected


BAD_VARIABLES = {
    "GATEWAY_SERVER__PROT": (
        "1",
        'environment GATEWAY_SERVER__PROT: unknown variable (did you mean "GATEWAY_SERVER__PORT"?)',
    ),
    "GATEWAY_SERVER__PORT": (
        "http",
        'environment GATEWAY_SERVER__PORT: must be a whole number from 0 to 65535, not the text "http"',
    ),
    "GATEWAY_KEYS__FILE": (
        "x",
        "environment GATEWAY_KEYS__FILE: unknown variable; only settings of the section server "
        "have variables, such as GATEWAY_SERVER__PORT",
    ),
    "GATEWAY_SERVER__ADMIN": (
        "127.0.0.1:8000",
        "environment GATEWAY_SERVER__ADMIN: is also the address of the main listener; choose another port, "
        "or remove the line",
    ),
}


@pytest.mark.parametrize("variable", BAD_VARIABLES)
def test_a_wrong_variable_is_named(variable: str, write: Write) -> None:
    value, expected = BAD_VARIABLES[variable]
    with pytest.raises(ConfigError) as caught:
        load(write({}), {variable: value})
    assert str(caught.value) == expected


def test_an_open_address_from_the_environment_needs_keys_too(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write({}), {"GATEWAY_SERVER__HOST": "0.0.0.0"})
    assert {problem.key for problem in caught.value.problems} == {"GATEWAY_SERVER__HOST"}
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", '"[::1]"', "localhost"])
def test_loopback_needs_no_keys(host: str, write: Write) -> None:
    snapshot = load(
        write({"gateway.yaml": f"server: {{host: {host}}}\n{GATEWAY}".replace("{host: ::1}", '{host: "::1"}')}), {}
    )
    assert snapshot.server.host == host.strip('"[]')


# ---------------------------------------------------------------- names that climb (F12)

TRAVERSALS = ["../gateway", "/etc/passwd", "sub/plain", "..", ".hidden", "plain.yaml/", "pl\\x00ain", "PLAIN", "a" * 65]


@pytest.mark.parametrize("name", TRAVERSALS)
@pytest.mark.parametrize("setting", ["template", "policy"])
def test_a_name_is_never_a_path(name: str, setting: str, write: Write) -> None:
    text = GATEWAY.replace("    template: plain\n", "").replace("  demo:\n", f'  demo:\n    {setting}: "{name}"\n')
    if setting == "policy":
        text = text.replace("    targets:", "    template: plain\n    targets:")
    with pytest.raises(ConfigError) as caught:
        load(write({"gateway.yaml": text}), {})
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (3, f"models.demo.{setting}")


@pytest.mark.parametrize("line", ["    tokenizer: ", "keys: {file: "])
def test_a_name_too_long_for_any_file_is_a_problem_like_any_other(line: str, write: Write) -> None:
    name = "x" * 5000
    text = GATEWAY + f"{line}{name}\n" if line[0] == " " else f"{line}{name}}}\n" + GATEWAY
    with pytest.raises(ConfigError):
        load(write({"gateway.yaml": text}), {})


def test_a_link_out_of_the_folder_is_refused(write: Write, tmp_path: Path) -> None:
    path = write({"gateway.yaml": GATEWAY.replace("plain", "linked"), "elsewhere.yaml": PLAIN})
    (tmp_path / "meta_templates" / "linked.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(ConfigError, match=r"meta_templates/linked\.yaml links to a file outside meta_templates/"):
        load(path, {})


def test_a_link_inside_the_folder_is_followed(write: Write, tmp_path: Path) -> None:
    path = write({"gateway.yaml": GATEWAY.replace("plain", "linked")})
    (tmp_path / "meta_templates" / "linked.yaml").symlink_to("plain.yaml")
    assert load(path, {}).models["demo"].template.name == "linked"


# ---------------------------------------------------------------- secrets (F17)


def test_secrets_are_never_shown(write: Write) -> None:
    snapshot = load(write(FULL_FILES), {"HOSTED_KEY": CANARY})
    for text in (repr(snapshot), str(snapshot), f"{snapshot}", repr(snapshot.models["hosted"].targets[0].key)):
        assert "canary" not in text
    key = snapshot.models["hosted"].targets[0].key
    assert key is not None
    assert key.get_secret_value() == CANARY


MISPLACED = {
    "as the key itself": GATEWAY + f"        key: {CANARY}\n",
    "as the name of a variable": GATEWAY + f'        key: "env:{CANARY}"\n',
    "in the address": GATEWAY.replace("http://", f"http://me:{CANARY}@"),
    "in a query": GATEWAY.replace("/v1", f"/v1?key={CANARY}"),
    "among the options": GATEWAY + f"        options: {{api_key: {CANARY}}}\n",
    "under a wrong name": GATEWAY + f"        api_key: {CANARY}\n",
    "in broken YAML": GATEWAY + f"        key: {CANARY}: x\n",
    "instead of a mapping": GATEWAY + f"  other: {CANARY}\n",
    "instead of a list": GATEWAY.replace("    targets:", f"    targets: {CANARY}\n    x:"),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_secret_in_the_wrong_place_is_not_repeated(name: str, write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write({"gateway.yaml": MISPLACED[name]}), {})
    assert "canary" not in str(caught.value) + repr(caught.value) + repr(caught.value.problems)


def test_a_secret_with_a_line_break_inside_is_refused_and_not_shown(write: Write) -> None:
    text = GATEWAY + '        key: "env:MY_KEY"\n'
    with pytest.raises(ConfigError) as caught:
        load(write({"gateway.yaml": text}), {"MY_KEY": f"{CANARY}\r\nx-admin: yes"})
    assert "the environment variable MY_KEY contains blanks" in str(caught.value)
    assert "canary" not in str(caught.value)


# ---------------------------------------------------------------- revisions, broken files, whole folders


def test_the_revision_changes_with_every_byte_and_only_then(write: Write) -> None:
    path = write(FULL_FILES)
    env = {"HOSTED_KEY": "hosted"}
    first = load(path, env)
    assert load(path, env).revision == first.revision
    assert len(first.revision) == 12
    seen = {first.revision}
    for file in read_configuration(path, env).files:
        if file.is_relative_to(path.parent) and file.suffix == ".yaml":
            file.write_text(file.read_text() + "# a remark\n")
            seen.add(load(path, env).revision)
    assert len(seen) == 5


def test_the_revision_does_not_depend_on_the_folder(write: Write, tmp_path: Path) -> None:
    path = write({"policies/default.yaml": ""})
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    first = load(path, {}).revision
    tmp_path.rename(moved)
    try:
        assert load(moved / "gateway.yaml", {}).revision == first
    finally:
        moved.rename(tmp_path)


def test_a_file_that_does_not_exist_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "gateway.yaml", {})
    assert str(caught.value) == "gateway.yaml: cannot read gateway.yaml (the file does not exist)"


def test_a_pipe_or_a_folder_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gateway.yaml")
    for path in (tmp_path / "gateway.yaml", tmp_path):
        with pytest.raises(ConfigError, match="the path is not a file"):
            load(path, {})


def test_half_of_a_template_is_never_taken_for_the_whole(write: Write) -> None:
    """Every prefix of the file is refused, or says the same as the whole (E08)."""
    path = write({})
    template = path.parent / "meta_templates" / "plain.yaml"
    whole = load(path, {}).models["demo"].template
    for end in range(len(PLAIN)):
        template.write_text(PLAIN[:end])
        outcome = read_configuration(path, {})
        if outcome.snapshot is not None:
            assert outcome.snapshot.models["demo"].template.round == whole.round
        assert template in outcome.files


def test_a_failing_example_refuses_the_template(write: Write) -> None:
    path = write({"meta_templates/plain.yaml": PLAIN.replace('prompt: "Q: hi', 'prompt: "Q: ho')})
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (problem,) = caught.value.problems
    assert (problem.file, problem.key[:11]) == ("meta_templates/plain.yaml", "examples[0]")
    assert problem.line in (6, 7)


def test_a_mistake_in_a_template_is_shown_at_its_line(write: Write) -> None:
    path = write({"meta_templates/plain.yaml": PLAIN.replace("round:", "runde:")})
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert any(problem.file == "meta_templates/plain.yaml" and problem.line for problem in caught.value.problems)


def test_everything_includes_what_no_model_names(write: Write) -> None:
    path = write(
        {
            "meta_templates/unused.yaml": "kind: nonsense\n",
            "meta_templates/Upper.yaml": PLAIN,
            "meta_templates/old.yml": PLAIN,
            "meta_templates/chat.yaml": PLAIN,
            "policies/unused.yaml": "cache: {ttl: 0}\n",
        },
    )
    load(path, {})
    found = [problem.file for problem in read_configuration(path, {}, everything=True).problems]
    assert sorted(set(found)) == [
        "meta_templates/Upper.yaml",
        "meta_templates/chat.yaml",
        "meta_templates/old.yml",
        "meta_templates/unused.yaml",
        "policies/unused.yaml",
    ]


def test_everything_of_a_good_configuration_finds_nothing(write: Write) -> None:
    assert read_configuration(write({}), {}, everything=True).problems == ()


def test_a_column_that_may_be_the_answer_is_noted(write: Write) -> None:
    prompt = 'input_columns: [question]\nprompt_template: {template: "Q: {question}\\nA: {answer}."}\n'
    (note,) = read_configuration(write({"prompts/sums.yaml": prompt}), {}, everything=True).notes
    assert str(note).startswith(
        "prompts/sums.yaml:1 output_column: is missing, so the prompt contains the value of {answer} if a request sends"
    )


# ---------------------------------------------------------------- the cache

MANY = "server: {workers: 2}\n"


@pytest.mark.parametrize(
    ("policy", "noted"),
    [
        ("cache: {ttl: 5m}", True),
        ("cache: {ttl: 5m, mode: on}", False),
        ("cache: {ttl: 5m, mode: off}", False),
        ("cache: {ttl: 5m}\nreasoning: replay", False),
    ],
    ids=str,
)
def test_a_duration_of_a_cache_that_is_not_on_is_noted(write: Write, policy: str, noted: bool) -> None:
    path = write({"gateway.yaml": GATEWAY, "policies/default.yaml": f"{policy}\n"})
    message = "policies/default.yaml:1 cache.ttl: has no effect without cache.mode; write `mode: on` too"
    assert [str(note) for note in load(path, {}).notes] == ([message] if noted else [])


@pytest.mark.parametrize(
    ("head", "mode", "noted"),
    [
        (MANY, "on", True),
        (MANY, "off", False),
        ("server: {workers: 1}\n", "on", False),
        (MANY + "cache: {path: answers.sqlite}\n", "on", False),
    ],
    ids=["memory of two workers", "no cache", "one worker", "a file"],
)
def test_a_cache_in_the_memory_of_several_workers_is_noted(write: Write, head: str, mode: str, noted: bool) -> None:
    path = write({"gateway.yaml": head + GATEWAY, "policies/default.yaml": f"cache: {{mode: {mode}}}\n"})
    notes = [str(note) for note in load(path, {}).notes]
    assert len(notes) == noted
    assert all(note.startswith("gateway.yaml:1 server.workers: policy default has a cache, and each") for note in notes)


# ---------------------------------------------------------------- addresses

TARGETS = {  # target: whether the note appears
    'speaks: completions, url: "http://127.0.0.1:1"': True,
    'speaks: chat, url: "http://127.0.0.1:1"': True,
    'speaks: chat, url: "http://127.0.0.1:1/v1"': False,
    'speaks: litellm, model: azure/a, url: "http://127.0.0.1:1"': False,
    'speaks: litellm, model: anthropic/a, url: "http://127.0.0.1:1"': False,
    'speaks: litellm, model: ollama_chat/a, url: "http://127.0.0.1:1"': False,
}


@pytest.mark.parametrize("target", TARGETS)
def test_an_address_without_a_path_is_noted_where_the_path_is_not_added(write: Write, target: str) -> None:
    template = "plain" if "completions" in target else "api-only"
    path = write({"gateway.yaml": f"models: {{demo: {{template: {template}, targets: [{{{target}}}]}}}}\n"})
    notes = [str(note) for note in load(path, {}).notes]
    assert any("write /v1 at the end of the address" in note for note in notes) == TARGETS[target]


# ---------------------------------------------------------------- fallback

MISSING = {  # attempts: the models for which no attempt is left
    1: "b, c, because each model needs one and policy default has delivery.retry.attempts: 1; allow 3 attempts",
    2: "c, because each model needs one and policy default has delivery.retry.attempts: 2; allow 3 attempts",
    3: "",
}


@pytest.mark.parametrize("attempts", MISSING)
def test_fallback_models_without_an_attempt_are_noted(write: Write, attempts: int) -> None:
    target = 'targets: [{speaks: completions, url: "http://127.0.0.1:8101/v1"}]'
    models = f"a: {{template: plain, {target}, fallback: [b, c]}}, b: {{template: plain, {target}}}"
    files = {
        "gateway.yaml": f"models: {{{models}, c: {{template: plain, {target}}}}}\n",
        "policies/default.yaml": f"delivery: {{fallback: true, retry: {{attempts: {attempts}}}}}\n",
    }
    notes = [str(note) for note in load(write(files), {}).notes]
    expected = f"gateway.yaml:1 models.a.fallback: leaves no attempt for {MISSING[attempts]}, or name fewer models"
    assert notes == ([expected] if MISSING[attempts] else [])


# ---------------------------------------------------------------- media files

FILES_ALLOWED = "media: {file: inline, folders: [images]}\n"


def test_media_folders_are_relative_to_the_folder_of_the_gateway_file(write: Write) -> None:
    path = write({"policies/default.yaml": FILES_ALLOWED, "images/a.png": ""})
    assert load(path, {}).models["demo"].policy.media == MediaPolicy(file="inline", folders=(path.parent / "images",))


@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "with keys"])
def test_media_files_without_client_keys_are_noted(write: Write, keyed: bool) -> None:
    files = {"policies/default.yaml": FILES_ALLOWED, "images/a.png": ""}
    if keyed:
        files |= {"gateway.yaml": f"keys: {{file: keys.yaml}}\n{GATEWAY}", "keys.yaml": f"me: {{sha256: {DIGEST}}}\n"}
    path = write(files)
    notes = [str(note) for note in read_configuration(path, {}, everything=True).notes]
    assert notes == [str(note) for note in load(path, {}).notes]
    assert len(notes) == (not keyed)
    assert all("policy default has media.file: inline, and there are no client keys" in note for note in notes)
    assert all(note.startswith("gateway.yaml:2 models.demo") for note in notes)


def test_a_policy_sets_fields_of_an_engine_that_it_allows_and_fields_that_only_the_operator_may_set(
    write: Write,
) -> None:
    text = """
params:
  default: {top_k: 20, min_p: 0, logprobs: 3, max_tokens: 9}
  force: {chat_template: "{{ messages }}", chat_template_kwargs: {enable_thinking: false}}
  clamp: {temperature: 1.5, max_completion_tokens: 10}
  allow: [top_k, min_p]
"""
    params = load(write({"policies/default.yaml": text}), {}).models["demo"].policy.params
    assert params.default == {"top_k": 20, "min_p": 0, "logprobs": 3, "max_tokens": 9}
    assert params.force.keys() == {"chat_template", "chat_template_kwargs"}
    assert params.clamp == {"temperature": 1.5, "max_completion_tokens": 10}


def test_a_policy_may_force_an_engines_own_response_format_that_it_allows(write: Write) -> None:
    text = "params: {force: {response_format: {type: structural_tag}}, allow: [response_format]}"
    params = load(write({"policies/default.yaml": text}), {}).models["demo"].policy.params
    assert params.force == {"response_format": {"type": "structural_tag"}}


def test_a_variable_that_names_a_secret_gives_the_secret(write: Write) -> None:
    env = {"GATEWAY_SERVER__VIEWER_SECRET": "env:SIGN", "SIGN": "a-long-secret"}
    secret = load(write({}), env).server.viewer_secret
    assert secret is not None
    assert secret.get_secret_value() == "a-long-secret"
