"""A model's folder is read as ``transformers`` reads it, by every reader, with a note on each disagreement.

``record_folders.py`` beside this file made the goldens, and compares them anew where ``transformers`` is installed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError, GatewayError
from gateway.workshop.chat_folders import chat_template_in, read_chat_folder
from gateway.workshop.importing.build import build_file
from gateway.workshop.importing.import_options import ImportOptions
from gateway.workshop.importing.output import write_files
from gateway.workshop.importing.sources import read_drafts
from metatemplate.files.reader import Files
from metatemplate.files.template_file import read_template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from tests.metatemplate.chat_templates import folders
from tests.metatemplate.chat_templates.folders import CONFIG, JINJA, LIST, MAP, NAMED, TELLS, TELLS_TOOLS
from tests.metatemplate.chat_templates.samples import dialogue

GOLDENS = json.loads(folders.GOLDENS.read_text(encoding="utf-8"))["folders"]
RENDERED = [name for name in folders.FOLDERS if GOLDENS[name]["plain"] != "error"]
REFUSED = [name for name in folders.FOLDERS if name not in RENDERED]
REFUSALS = {
    "templates: no default in the list": "no template named default; set `variant` to one of its templates: rag",
    "templates: named files alone": "chat_template.jinja is missing, and additional_chat_templates/ contains only rag",
    "templates: null in the configuration": "has no key chat_template",
}


def outcomes(spec: TemplateSpec) -> dict[str, str]:
    """As the recorder writes them; tools only where the template speaks of them."""
    template = build(spec)
    asked = {name: tools for name, tools in folders.ASKED.items() if tools is None or spec.tools is not None}
    return {
        name: "=" + template.render(dialogue({"messages": [folders.USER], **({"tools": tools} if tools else {})})).text
        for name, tools in asked.items()
    }


def expected(name: str, spec: TemplateSpec) -> dict[str, str]:
    if spec.tools is None:
        assert GOLDENS[name]["plain"] == GOLDENS[name]["with a tool"]
        return {"plain": GOLDENS[name]["plain"]}
    return dict(GOLDENS[name])


def of_yaml(folder: Path, keys: str) -> tuple[TemplateSpec | None, Files]:
    path = folder / "t.yaml"
    path.write_text(f"kind: jinja\n{keys}\n", encoding="utf-8")
    files = Files(folder)
    return read_template(files, path, "t", files.add_problem(path)), files


def by_parity(folder: Path, home: Path) -> TemplateSpec:
    file = chat_template_in(folder)
    assert file is not None
    return read_chat_folder(file).spec


def by_kind_jinja(folder: Path, home: Path) -> TemplateSpec:
    file = chat_template_in(folder)
    assert file is not None
    speaks = "tools: {parser: json}" if by_parity(folder, home).tools is not None else ""
    spec, files = of_yaml(home, f"file: {file.relative_to(home).as_posix()}\n{speaks}")
    assert spec is not None, files.problems
    return spec


def by_import(folder: Path, home: Path) -> TemplateSpec:
    (draft,) = read_drafts(ImportOptions(folder))
    place = home / "made" / f"{draft.name}.yaml"
    write_files(build_file(draft), place)
    speaks = "\ntools: {parser: json}\n" if by_parity(folder, home).tools is not None else ""
    place.write_text(place.read_text(encoding="utf-8") + speaks, encoding="utf-8")
    files = Files(place.parent)
    spec = read_template(files, place, draft.name, files.add_problem(place))
    assert spec is not None, files.problems
    return spec


@pytest.mark.parametrize("reads", [by_parity, by_kind_jinja, by_import])
@pytest.mark.parametrize("name", RENDERED)
def test_a_folder_is_read_as_transformers_reads_it(name: str, reads: Any, tmp_path: Path) -> None:
    spec = reads(folders.write(tmp_path / "m", folders.FOLDERS[name]), tmp_path)
    assert outcomes(spec) == expected(name, spec)


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_without_a_default_template_is_refused(name: str, tmp_path: Path) -> None:
    folder = folders.write(tmp_path, folders.FOLDERS[name])
    with pytest.raises(ConfigError, match=REFUSALS[name]):
        read_chat_folder(chat_template_in(folder) or folder / CONFIG)


def test_the_goldens_are_those_of_these_folders() -> None:
    assert list(GOLDENS) == list(folders.FOLDERS)
    assert list(REFUSALS) == REFUSED


TOLD: dict[str, tuple[str, ...]] = {  # folder: the beginning of each note
    "tokens: in the configuration": (),
    "tokens: in the map alone": (),
    "tokens: the map fills up": (),
    "tokens: the map goes before": (
        "bos_token is '<s>' in tokenizer_config.json and '<m>' in special_tokens_map.json: '<m>' is used",
    ),
    "tokens: the map goes before a null": (),
    "tokens: a null in the map takes away": (
        "bos_token is '<s>' in tokenizer_config.json and none in special_tokens_map.json: none is used",
    ),
    "tokens: a newer folder's map is not read": (
        "bos_token is '<s>' in tokenizer_config.json and '<m>' in special_tokens_map.json: '<s>' is used",
        "eos_token is none in tokenizer_config.json and '</m>' in special_tokens_map.json: none is used",
    ),
    "tokens: of the folder's own, in both": (
        "image_token is '<img>' in tokenizer_config.json and '<other>' in special_tokens_map.json: '<img>' is used, "
        "as in transformers",
    ),
    "templates: one in the configuration": (),
    "templates: a list in the configuration": ("there are several templates (default, tool_use, rag): ",),
    "templates: a name twice": ("tokenizer_config.json has two templates 'default': the last", "there are several"),
    "templates: a file, and another in the configuration": (
        "tokenizer_config.json and chat_template.jinja have different chat templates: "
        "tokenizer_config.json is not used",
    ),
    "templates: named files": ("there are several templates (default, rag, tool_use): ",),
    "templates: named files, and a list": ("tokenizer_config.json and ", "there are several templates"),
    "templates: a default in the folder": ("chat_template.jinja is not used: additional_chat_templates/default.jinja",),
    "templates: a processor's beside": ("chat_template.json and chat_template.jinja have different chat templates",),
}


@pytest.mark.parametrize("name", TOLD)
def test_files_that_disagree_are_told(name: str, tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", folders.FOLDERS[name])
    for spec in (by_parity(folder, tmp_path), by_kind_jinja(folder, tmp_path)):
        assert spec.jinja is not None
        notes = spec.jinja.notes
        assert len(notes) == len(TOLD[name]), notes
        for note, begin in zip(notes, TOLD[name], strict=True):
            assert note.startswith(begin)


def test_a_note_has_the_line_of_the_file_that_is_named(tmp_path: Path) -> None:
    folders.write(tmp_path / "m", folders.FOLDERS["tokens: the map goes before"])
    _, files = of_yaml(tmp_path, "description: x\nfile: m/chat_template.jinja")
    assert [str(note).partition(" is ")[0] for note in files.notes] == ["t.yaml:3 file: bos_token"]


NAMES: dict[str, tuple[str, str]] = {
    # keys of the template, what it renders
    "as transformers chooses": ("", "file"),
    "one for all": ("variant: rag", "rag 1"),
    "the default, tools or not": ("variant: default", "file"),
}
WITH_NAMES = {JINJA: "file", f"{NAMED}/rag.jinja": "rag {{ 1 }}", f"{NAMED}/tool_use.jinja": TELLS_TOOLS}


@pytest.mark.parametrize(("keys", "text"), NAMES.values(), ids=NAMES)
def test_a_route_names_its_template(tmp_path: Path, keys: str, text: str) -> None:
    folders.write(tmp_path / "m", WITH_NAMES)
    spec, files = of_yaml(tmp_path, f"file: m/chat_template.jinja\n{keys}")
    assert spec is not None, files.problems
    assert outcomes(spec) == {"plain": f"={text}"}
    assert bool(files.notes) == (not keys)


@pytest.mark.parametrize("source", ["files", "list"])
def test_both_sources_of_names_follow_one_rule(tmp_path: Path, source: str) -> None:
    of_files = {JINJA: "listed", f"{NAMED}/rag.jinja": "rag", f"{NAMED}/tool_use.jinja": TELLS_TOOLS}
    folders.write(tmp_path / "m", {CONFIG: {"chat_template": LIST}} if source == "list" else of_files)
    file = CONFIG if source == "list" else JINJA
    spec, files = of_yaml(tmp_path, f"file: m/{file}\ntools: {{parser: json}}")
    assert spec is not None, files.problems
    asked = dialogue({"messages": [folders.USER], "tools": [folders.TOOL]})
    prompt = build(spec).render(asked)
    assert prompt.text == "1 tools: hi"
    assert "template_variant: tool_use" in [str(notice) for notice in prompt.metadata.notices]
    assert [str(notice) for notice in build(spec).render(dialogue({"messages": [folders.USER]})).metadata.notices] == [
        "changed_content: messages[0]"
    ]
    (note,) = files.notes
    assert "requests use default, and requests with tools use tool_use, as in transformers; " in str(note)
    _, refused = of_yaml(tmp_path, f"file: m/{file}\nvariant: rags")
    assert 'the file has no template "rags" (did you mean "rag"?)' in str(refused.problems[0]).replace("'", '"')


def test_a_named_file_stands_for_itself_with_the_folders_tokens(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "file", f"{NAMED}/rag.jinja": TELLS, CONFIG: {"bos_token": "<s>"}})
    spec, files = of_yaml(tmp_path, f"file: m/{NAMED}/rag.jinja")
    assert spec is not None, files.problems
    assert files.notes == []
    assert outcomes(spec)["plain"].startswith("=[bos_token=<s>]")
    assert outcomes(read_chat_folder(folder / NAMED / "rag.jinja").spec) == outcomes(spec)


ANOTHER: dict[str, tuple[dict[str, Any], str, str]] = {
    # files, the one that is named, the note
    "the configuration, where a file goes before": (
        {JINJA: "file", CONFIG: {"chat_template": "configured"}},
        CONFIG,
        "chat_template.jinja and tokenizer_config.json have different chat templates: "
        "the tokenizers of transformers use chat_template.jinja",
    ),
    "the configuration, where named files go before": (
        {f"{NAMED}/rag.jinja": "rag", CONFIG: {"chat_template": "configured"}},
        CONFIG,
        "additional_chat_templates/ (rag) and tokenizer_config.json have different chat templates: "
        "the tokenizers of transformers use additional_chat_templates/ (rag)",
    ),
    "a processor's, where the configuration has another": (
        {CONFIG: {"chat_template": "configured"}, "chat_template.json": {"chat_template": "processed"}},
        "chat_template.json",
        "tokenizer_config.json and chat_template.json have different chat templates: "
        "the tokenizers of transformers use tokenizer_config.json",
    ),
    "one processor's, where the other goes before": (
        {"chat_template.json": {"chat_template": "older"}, "processor_config.json": {"chat_template": "newer"}},
        "chat_template.json",
        "processor_config.json and chat_template.json have different chat templates: "
        "the processors of transformers use processor_config.json",
    ),
    "one processor's that goes before": (
        {"chat_template.json": {"chat_template": "older"}, "processor_config.json": {"chat_template": "newer"}},
        "processor_config.json",
        "chat_template.json and processor_config.json have different chat templates: "
        "chat_template.json is not used, as in transformers",
    ),
}


@pytest.mark.parametrize(("files", "name", "note"), ANOTHER.values(), ids=ANOTHER)
def test_a_template_that_transformers_would_not_take_is_used_and_told(
    tmp_path: Path, files: dict[str, Any], name: str, note: str
) -> None:
    folders.write(tmp_path / "m", files)
    spec, read = of_yaml(tmp_path, f"file: m/{name}")
    assert spec is not None, read.problems
    assert outcomes(spec) == {"plain": f"={files[name]['chat_template']}"}
    assert [one.message for one in read.notes] == [note]


def test_the_same_template_twice_is_no_disagreement(tmp_path: Path) -> None:
    folders.write(tmp_path / "m", {JINJA: "one\r\ntwo\n", CONFIG: {"chat_template": "one\ntwo"}})
    _, files = of_yaml(tmp_path, "file: m/chat_template.jinja")
    assert files.notes == []


def test_older_folders_tell_the_texts_that_end_an_answer(tmp_path: Path) -> None:
    files = {
        JINJA: "x",
        MAP: {"eos_token": "</s>"},
        "generation_config.json": {"eos_token_id": [2, 5]},
        "added_tokens.json": {"<eoa>": 5},
    }
    folders.write(tmp_path / "m", files)
    spec, read = of_yaml(tmp_path, "file: m/chat_template.jinja")
    assert spec is not None, read.problems
    prompt = build(spec).render(dialogue({"messages": [folders.USER]}))
    assert (prompt.metadata.stops, prompt.metadata.stop_token_ids) == (("</s>", "<eoa>"), (2, 5))


def test_the_digest_is_that_of_the_files_that_decide(tmp_path: Path) -> None:
    def digest(**changed: Any) -> str:
        folders.write(tmp_path / "m", {**WITH_NAMES, CONFIG: {}, MAP: {"bos_token": "<m>"}, **changed})
        spec, files = of_yaml(tmp_path, "file: m/chat_template.jinja")
        assert spec is not None, files.problems
        return spec.digest

    first = digest()
    assert digest() == first
    assert digest(**{MAP: {"bos_token": "<n>"}}) != first
    assert digest(**{f"{NAMED}/rag.jinja": "other"}) != first
    assert digest(**{"chat_template.json": {"chat_template": "a processor's"}}) == first


def test_the_digest_counts_the_names_of_the_files(tmp_path: Path) -> None:
    """The same bytes under another name are another template: ``default`` goes before ``chat_template.jinja``."""
    for home, name in ((tmp_path / "1", "rag"), (tmp_path / "2", "default")):
        folders.write(home / "m", {JINJA: "file", f"{NAMED}/{name}.jinja": "its own"})
    one, two = [by_kind_jinja(home / "m", home) for home in (tmp_path / "1", tmp_path / "2")]
    assert (outcomes(one), outcomes(two)) == ({"plain": "=file"}, {"plain": "=its own"})
    assert one.digest != two.digest
    assert by_parity(tmp_path / "1" / "m", tmp_path).digest != by_parity(tmp_path / "2" / "m", tmp_path).digest


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a name that transformers mistakes": (
        {f"{NAMED}/file.jinja": "x"},
        "transformers confuses this file with chat_template.jinja",
    ),
    "a map with a template": ({MAP: {"chat_template": "x"}}, "move this key to tokenizer_config.json"),
    "a map that is not JSON": ({MAP: "{"}, "special_tokens_map.json is not JSON"),
    "a map that nests too deeply": ({MAP: '{"a":' * 100_000}, "special_tokens_map.json is not JSON"),
    "a token with no name": ({CONFIG: {"extra_special_tokens": {"a b": "x"}}}, "has a token 'a b'"),
    "a token of our name": ({CONFIG: {"extra_special_tokens": {"tools": "x"}}}, "has a token 'tools'"),
    "a template that is no text": ({CONFIG: {"chat_template": 7}}, "must be a text, or a list"),
    "a token with no name, in the map": (
        {MAP: {"a-b_token": "x"}},
        "special_tokens_map.json has a token 'a-b",
    ),
    "half of a character": (
        {CONFIG: '{"bos_token": "\\ud800"}'},
        "tokenizer_config.json contains the lone surrogate '\\ud800'",
    ),
    "a template whose name is no UTF-8": (
        {f"{NAMED}/a\udcff.jinja": "x"},
        "'a\\udcff.jinja', whose name is not",
    ),
    "an empty template": ({JINJA: ""}, "the template default is empty"),
    "an empty template for tools": ({f"{NAMED}/tool_use.jinja": ""}, "the template tool_use is empty"),
}


@pytest.mark.parametrize(("files", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_folder_that_cannot_be_read_says_why(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "x", **files})
    spec, read = of_yaml(tmp_path, "file: m/chat_template.jinja")
    assert spec is None
    assert any(words in problem.message for problem in read.problems), read.problems
    with pytest.raises(GatewayError, match=re.escape(words)):
        read_chat_folder(folder / JINJA)


def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "file", f"{NAMED}/a\nkind: x.jinja": "other"})
    (note,) = by_kind_jinja(folder, tmp_path).jinja.notes  # type: ignore[union-attr]
    assert note.startswith(r"there are several templates (default, a\nkind: x): requests use default")


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    spec, read = of_yaml(tmp_path, r'file: "m/a\0b.jinja"')
    assert spec is None
    assert [problem.message for problem in read.problems] == [r"'a\x00b.jinja' is not a valid file name"]


@pytest.mark.parametrize("name", [f"{NAMED}/tool_use.jinja", CONFIG])
def test_a_link_that_leads_nowhere_is_told_as_such(tmp_path: Path, name: str) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "file", f"{NAMED}/rag.jinja": "other"})
    (folder / name).symlink_to("gone")
    with pytest.raises(ConfigError, match=f"{name} is not a regular file, or is a broken link") as caught:
        read_chat_folder(folder / JINJA)
    assert len(caught.value.problems) == 1


def test_a_relative_path_inside_the_folder_sees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "file", f"{NAMED}/rag.jinja": TELLS, CONFIG: {"bos_token": "<s>"}})
    monkeypatch.chdir(folder / NAMED)
    assert outcomes(read_chat_folder(Path("rag.jinja")).spec)["plain"].startswith("=[bos_token=<s>]")


def test_half_of_a_character_in_a_large_configuration_is_refused(tmp_path: Path) -> None:
    config = {"bos_token": "\ud800", "x": "x" * 1_100_000}
    folder = folders.write(tmp_path / "m", {JINJA: TELLS, CONFIG: config})
    with pytest.raises(ConfigError, match=r"tokenizer_config.json contains the lone surrogate '.ud800'"):
        read_chat_folder(folder / JINJA)


def test_a_large_configuration_stays_a_newer_one(tmp_path: Path) -> None:
    """Whether the map counts hangs on ``added_tokens_decoder`` being there, whatever it is."""
    config = {"bos_token": "<s>", "added_tokens_decoder": [], "x": "x" * 1_100_000}
    folder = folders.write(tmp_path / "m", {JINJA: TELLS, CONFIG: config, MAP: {"bos_token": "<m>"}})
    assert outcomes(by_import(folder, tmp_path))["plain"].startswith("=[bos_token=<s>]")


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "m", {JINJA: "x"})
    (tmp_path / "elsewhere.json").write_text("{}", encoding="utf-8")
    (folder / CONFIG).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ConfigError, match="a file outside the folder"):
        read_chat_folder(folder / JINJA)


def test_the_links_of_a_hubs_cache_are_followed(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    folders.write(blobs, {"a": TELLS, "b": {"bos_token": "<s>"}})
    snapshot.mkdir(parents=True)
    for name, blob in ((JINJA, "a"), (CONFIG, "b")):
        (snapshot / name).symlink_to(blobs / blob)
    assert outcomes(by_import(snapshot, tmp_path))["plain"].startswith("=[bos_token=<s>]")
