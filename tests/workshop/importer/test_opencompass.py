"""An OpenCompass config becomes templates; what is not imported is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.opencompass import read_opencompass
from gateway.workshop.importer.yaml_writer import write_yaml
from metatemplate.files.template import parse_spec
from metatemplate.files.yaml import parse as parse_yaml
from metatemplate.templates.registry import build
from metatemplate.templates.spec import RoleSpec
from metatemplate.values.dialogue import Dialogue, Message
from tests.presets.test_presets import FILES, preset
from tests.workshop.importer.files import shipped, source


def test_a_config_becomes_a_template_and_notes() -> None:
    (draft,) = read_opencompass(shipped("hf_mine.py"))
    assert draft.name == "mine-7b-hf"
    assert draft.keys == {
        "kind": "meta",
        "description": "Imported from the OpenCompass config hf_mine.py.",
        "begin": "<s>",
        "round": [
            {"role": "HUMAN", "begin": "<|user|>\n", "end": "<|end|>\n"},
            {"role": "BOT", "begin": "<|bot|>\n", "end": "<|end|>\n", "generate": True},
        ],
        "reserved_roles": [{"role": "SYSTEM", "begin": "<|system|>\n", "end": "<|end|>\n"}],
        "eos_token_id": 2,
        "stop": ["<|end|>", "<|user|>"],
    }
    notes = "\n".join(draft.notes)
    for told in (
        "type = ",
        "path = 'mine/7b-chat'",
        "max_out_len = 100",
        "batch_size = 8",
        "run_cfg = ",
        "meta_template.tokens = ",
    ):
        assert told in notes
    assert "generation_kwargs" not in notes  # all of it was imported


def test_each_sampling_setting_is_listed_with_its_place() -> None:
    (draft,) = models(
        f"models = [dict(abbr='a', meta_template=dict({ROUND}), generation_kwargs=dict("
        "temperature=0.5, max_new_tokens=9, num_beams=2, stop_words=['X'], eos_token_id=[1, 2]))]"
    )
    assert [note for note in draft.notes if "generation_kwargs" in note] == [
        "generation_kwargs.eos_token_id = [1, 2]: a template can have only one eos_token_id; "
        "list the texts of these tokens under stop",
        "generation_kwargs.temperature = 0.5: write in a policy `params: {default: {temperature: 0.5}}`",
        "generation_kwargs.max_new_tokens = 9: write in a policy `params: {default: {max_tokens: 9}}`",
        "generation_kwargs.num_beams = 2: not imported, because a template cannot contain it",
    ]


def test_a_key_in_a_config_is_not_shown() -> None:
    (draft,) = models(
        f"models = [dict(abbr='a', meta_template=dict({ROUND}), key='secret-1', api_secret='secret-2', "
        "headers={'Authorization': 'Bearer secret-3', 'x': 'kept'})]"
    )
    notes = "\n".join(draft.notes)
    assert "secret-" not in notes
    assert "key = (not shown): write it in gateway.yaml as env:NAME" in notes
    assert "'x': 'kept'" in notes


def models(text: str, **beside: str) -> list[Any]:
    return read_opencompass(source("config.py", text, {f"{name}.py": one for name, one in beside.items()}))


ROUND = "round=[dict(role='HUMAN', begin='H:'), dict(role='BOT', begin='B:', generate=True)]"

FOUND = {
    "a model": (f"models = [dict(abbr='a', meta_template=dict({ROUND}))]", ["a"]),
    "two models": (
        f"m = dict({ROUND})\nmodels = [dict(abbr='A', meta_template=m), dict(abbr='b', meta_template=m)]",
        ["a", "b"],
    ),
    "a template alone": (f"my_meta_template = dict({ROUND})", ["config"]),
    "two templates alone": (
        f"_meta_template = dict({ROUND})\napi_meta_template = dict({ROUND})",
        ["meta_template", "api_meta_template"],
    ),
    "models put together from other lists": (
        f"a_model = [dict(abbr='a', meta_template=dict({ROUND}))]\nmodels = [*a_model] + a_model[:0]",
        ["a"],
    ),
    "one without a template": (f"models = [dict(abbr='x'), dict(abbr='b', meta_template=dict({ROUND}))]", ["b"]),
    "without abbr": (f"models = [dict(meta_template=dict({ROUND}))]", ["config"]),
}


@pytest.mark.parametrize(("text", "names"), FOUND.values(), ids=FOUND)
def test_models_and_templates_are_found(text: str, names: list[str]) -> None:
    assert [draft.name for draft in models(text)] == names


def test_a_base_beside_is_read_and_another_is_refused() -> None:
    beside, far = "    from .base import models as base_models\n", "    from ..far import models as far_models\n"
    base = f"models = [dict(abbr='a', meta_template=dict({ROUND}))]"
    (draft,) = models(f"with read_base():\n{beside}", base=base)
    assert draft.name == "a"
    with pytest.raises(ConfigError, match=r"^config\.py:3: \.\.far was not found in the config's folder; name the "):
        models(f"with read_base():\n{beside}{far}", base=base)


def test_the_models_of_a_resolved_config_are_read() -> None:
    template = {"round": [{"role": "HUMAN", "begin": "H:"}, {"role": "BOT", "begin": "B:", "generate": True}]}
    resolved = [{"abbr": "api"}, {"abbr": "a", "type": "opencompass.models.HF", "meta_template": template}]
    (draft,) = read_opencompass(source("resolved.json", json.dumps({"models": resolved})))
    assert (draft.name, draft.keys["round"]) == ("a", template["round"])
    with pytest.raises(ConfigError, match=r"resolved\.json models: no model has a meta_template"):
        read_opencompass(source("resolved.json", json.dumps({"models": resolved[:1]})))


REFUSED = {
    "nothing": ("x = 1", "config.py: the file has no meta_template of plain values"),
    "a list around": (f"models = [dict(meta_template=[dict({ROUND})])]", "meta_template is in a list"),
    "a computed text": (
        "models = [dict(meta_template=dict(begin=f'{x}', round=[]))]",
        "config.py:1: meta_template contains",
    ),
    "a function": (f"models = [dict(meta_template=make({ROUND}))]", "meta_template is not a plain mapping but make(…)"),
    "models changed by a loop": (
        f"models = [dict(meta_template=dict({ROUND}))]\nfor m in models:\n    m['meta_template'][a] = 'x'",
        "config.py:2: a loop is not read",
    ),
    "a template changed by a method": (
        f"t = dict({ROUND})\nt.update(other)\nmodels = [dict(meta_template=t)]",
        "config.py:2: the call t.update() is not read",
    ),
    "a name that is not plain": (
        f"models = [dict(abbr=f'{{x}}', meta_template=dict({ROUND}))]",
        "config.py:1: abbr contains an f-string",
    ),
    "a base that is gone": (
        "with read_base():\n    from .gone import models\n",
        "config.py:2: .gone was not found beside config.py; put gone.py there",
    ),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        models(text)
    assert says in str(caught.value)


def test_several_token_ids_are_told() -> None:
    (draft,) = models(f"models = [dict(meta_template=dict({ROUND}), generation_kwargs=dict(eos_token_id=[1, 2]))]")
    assert "eos_token_id" not in draft.keys
    assert any("eos_token_id = [1, 2]" in note for note in draft.notes)
    (draft,) = models(f"models = [dict(meta_template=dict({ROUND}), generation_kwargs=dict(eos_token_id=[1]))]")
    assert draft.keys["eos_token_id"] == 1


def test_a_template_may_come_as_json() -> None:
    text = '{"abbr": "mine", "meta_template": {"round": [{"role": "HUMAN"}, {"role": "BOT", "generate": true}]}}'
    (draft,) = read_opencompass(source("m.json", text))
    assert (draft.name, draft.keys["round"][1]) == ("mine", {"role": "BOT", "generate": True})


# ---------------------------------------------------------------- there and back


def exported(name: str) -> str:
    """A preset as an OpenCompass config."""
    spec = preset(name)

    def role(entry: RoleSpec | str) -> Any:
        if isinstance(entry, str):
            return entry
        given = {
            "role": entry.role,
            "begin": entry.begin,
            "end": entry.end,
            "prompt": entry.prompt,
            "api_role": entry.api_role,
            "fallback_role": entry.fallback_role,
        }
        found = {key: value for key, value in given.items() if value not in (None, "")}
        return {**found, "generate": True} if entry.generate else found

    template = {
        "begin": spec.begin or None,
        "end": spec.end or None,
        "round": [role(entry) for entry in spec.round],
        "reserved_roles": [role(entry) for entry in spec.reserved_roles],
        "eos_token_id": spec.eos_token_id,
    }
    return f"models = [dict(abbr={name!r}, meta_template={template!r}, stop_words={list(spec.stop)!r})]"


MADE_OF_ROLES = [name for name in FILES if not {preset(name).kind} - {"meta"} and preset(name).tools is None]


@pytest.mark.parametrize("name", MADE_OF_ROLES)
def test_a_preset_that_is_exported_comes_back_the_same(name: str) -> None:
    (draft,) = read_opencompass(source(f"{name}.py", exported(name)))
    document = parse_yaml(write_yaml(draft).encode(), "made.yaml")
    assert document.problems == []
    back, spec = parse_spec(document.value, name=name), preset(name)
    for field in ("begin", "end", "round", "reserved_roles", "eos_token_id", "stop"):
        assert getattr(back, field) == getattr(spec, field), field


API_CONFIG = """
from opencompass.models import BailingAPI
api_meta_template = dict(
    round=[dict(role='HUMAN', api_role='HUMAN'), dict(role='BOT', api_role='BOT', generate=%s)],
    reserved_roles=[dict(role='SYSTEM', api_role='SYSTEM')],
)
models = [dict(path='Bailing-Lite-0830', type=BailingAPI, meta_template=api_meta_template, batch_size=1)]
"""


@pytest.mark.parametrize(("generate", "has_note"), [("False", True), ("True", False)])
def test_an_api_template_that_generates_nowhere_becomes_one_that_does_with_a_note(
    generate: str, has_note: bool
) -> None:
    (draft,) = read_opencompass(source("bailing.py", API_CONFIG % generate))
    assert draft.keys["round"][1] == {"role": "BOT", "api_role": "BOT", "generate": True}
    assert any(note.startswith("round[1].generate: False was changed to true.") for note in draft.notes) == has_note
    template = build(parse_spec(draft.keys, name="bailing"))
    said = Dialogue((Message("system", "s"), Message("user", "q")))
    assert template.render(said).messages == ({"role": "system", "content": "s"}, {"role": "user", "content": "q"})


def test_a_string_template_that_generates_nowhere_stays_as_it_is() -> None:
    text = "meta_template = dict(round=[dict(role='HUMAN'), dict(role='BOT', generate=False)])"
    (draft,) = read_opencompass(source("x.py", text))
    assert draft.keys["round"][1] == {"role": "BOT", "generate": False}


@pytest.mark.parametrize("bomb", ["x = [x]\n" * 20_000, "x = [x, x]\n" * 40], ids=["deep", "wide"])
@pytest.mark.parametrize("key", ["other", "path"])
def test_a_setting_of_any_size_is_noted_in_short(bomb: str, key: str) -> None:
    (draft,) = models(f"x = []\n{bomb}models = [dict(meta_template=dict({ROUND}), {key}=x)]")
    (note,) = [note for note in draft.notes if note.startswith(f"{key} = [[[[")]
    assert len(note) < 250
