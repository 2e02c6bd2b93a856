"""A Modelfile with a plain template becomes turns that write Ollama's prompts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.kinds import kind_of
from gateway.workshop.importer.ollama import read_modelfile, read_ollama, reference_of
from metatemplate.files.template import parse_spec
from metatemplate.templates.registry import build, dialogue_of
from metatemplate.templates.spec import Example
from tests.support.growth import assert_linear
from tests.workshop.importer.files import shipped, source

SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}
ANSWER, AGAIN = {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Bye"}
TALK = (SYSTEM, USER, ANSWER, AGAIN)


def rendered(template: str, *messages: dict[str, str]) -> str:
    return reference_of(template).side.render(dialogue_of(Example(messages))).text


TAGGED = (
    "{{ if .System }}<s>{{ .System }}</s>{{ end }}{{ if .Prompt }}<u>{{ .Prompt }}</u>{{ end }}<a>{{ .Response }}</a>"
)
EACH = """{{- range .Messages }}
{{- if eq .Role "system" }}<s>{{ .Content }}</s>
{{- else if eq .Role "user" }}<u>{{ .Content }}</u>
{{- else if eq .Role "assistant" }}<a>{{ .Content }}</a>
{{- end }}
{{- end }}<a>"""

TURNS = {
    "exchanges": TAGGED,
    "messages": EACH,
    "the system text inside the first turn": (
        "[INST] {{ if .System }}<<SYS>>{{ .System }}<</SYS>>{{ end }}{{ .Prompt }} [/INST]{{ .Response }}</s>"
    ),
    "the role as it is": "{{ range .Messages }}<|{{ .Role }}|>\n{{ .Content }}<|end|>\n{{ end }}<|assistant|>\n",
}


@pytest.mark.parametrize("name", TURNS)
def test_a_template_becomes_turns_that_write_the_same(name: str) -> None:
    draft = read_ollama(source("Modelfile", f'FROM x\nTEMPLATE """{TURNS[name]}"""\n'))
    template = build(parse_spec(draft.keys, name="x"))
    for messages in ((USER,), (SYSTEM, USER), (USER, ANSWER, AGAIN), TALK):
        assert template.render(dialogue_of(Example(messages))).text == rendered(TURNS[name], *messages)


@pytest.mark.parametrize(("stop", "noted"), [("", True), ('PARAMETER stop "</s>"\n', False)])
def test_an_end_that_cannot_be_told_from_the_next_begin_is_noted(stop: str, noted: bool) -> None:
    template = TURNS["the system text inside the first turn"]
    draft = read_ollama(source("Modelfile", f'{stop}TEMPLATE """{template}"""\n'))
    assert any("no text marks the end of an answer" in note for note in draft.notes) == noted


def test_a_modelfile_becomes_a_template_and_notes() -> None:
    draft = read_ollama(shipped("Modelfile"))
    assert draft.keys["stop"] == ["<|im_end|>", "<|im_start|>"]
    assert draft.keys["bos"] == "engine"
    assert draft.keys["round"][1] == {
        "role": "BOT",
        "begin": "<|im_start|>assistant\n",
        "end": "<|im_end|>\n",
        "generate": True,
    }
    told = "\n".join(draft.notes)
    for words in (
        "line 2: FROM ./mine.gguf",
        "PARAMETER num_ctx 4096",
        "max_tokens: 64",
        "temperature: 0.2",
        "repeat_penalty 1.1: this is a setting of the engine",
        "Ollama sends 'You are kind.\\nAnd brief.'",
        "MESSAGE 'user",
    ):
        assert words in told


INSTRUCTIONS: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "in small letters": ("from x\nparameter stop a b", [("FROM", "", "x"), ("PARAMETER", "stop", "a b")]),
    "quoted": ('PARAMETER stop " a "', [("PARAMETER", "stop", " a ")]),
    "over lines": ('SYSTEM """a\n\n b """\nFROM x', [("SYSTEM", "", "a\n\n b "), ("FROM", "", "x")]),
    "one quote over lines": ('SYSTEM "a\nb"', [("SYSTEM", "", "a\nb")]),
    "tabs and comments": ("# hi\n\tFROM\tx\n", [("FROM", "", "x")]),
    "a # inside a value": ("SYSTEM a # b", [("SYSTEM", "", "a # b")]),
}


@pytest.mark.parametrize(("text", "found"), INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_instructions_are_read(text: str, found: list[tuple[str, str, str]]) -> None:
    assert [(one.word, one.name, one.value) for one in read_modelfile(source("Modelfile", text))] == found


REFUSED: dict[str, tuple[str, str]] = {
    "no template": ("FROM x", "the Modelfile has no TEMPLATE"),
    "an unknown instruction": ("FROM x\nSTOP y", "Modelfile:2: 'STOP' is not an instruction"),
    "a quote never closed": ('FROM x\nTEMPLATE """a', "Modelfile:2: the value of TEMPLATE is not closed"),
    "a parameter without a value": ("PARAMETER stop", "Modelfile:1: PARAMETER needs a name and a value"),
    "a renderer": ("FROM x\nRENDERER mine\nTEMPLATE x", "Modelfile:2: Ollama renders this model by its own code"),
    "an unknown construct, by its line": (
        'FROM x\nTEMPLATE """a\n{{ .Prompt }}\n{{ template "x" }}"""',
        'Modelfile:4 TEMPLATE: {{ template "x" }} is not supported here; import the folder',
    ),
    "a default system turn": (
        'TEMPLATE """<s>{{ if .System }}{{ .System }}{{ else }}Me.{{ end }}</s><u>{{ .Prompt }}</u><a>"""',
        "a system message changes the start of the prompt",
    ),
    "numbered messages": (
        'TEMPLATE """{{ range $i, $m := .Messages }}{{ $i }}:{{ .Content }} {{ end }}"""',
        "{{ $i }} is not supported",
    ),
    "a message that is left out": ('TEMPLATE """{{ .Prompt }}"""', "with the role system is left out or changed"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_turns_cannot_say_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_ollama(source("Modelfile", text))
    assert says in str(caught.value)


def test_without_system_the_rest_may_be_said() -> None:
    draft: Any = read_ollama(source("Modelfile", 'TEMPLATE """<u>{{ .Prompt }}</u><a>"""'), subset=("system",))
    assert "reserved_roles" not in draft.keys
    assert draft.keys["round"][0]["begin"] == "<u>"


GROWING = {  # a file that takes minutes if the work grows with the square of its lines
    "a quote never closed": 'FROM x\nTEMPLATE """a\n' + "b\n" * 1,
    "blank lines": "\n",
    "nearly an instruction": "FRO\n",
}


@pytest.mark.parametrize("name", GROWING)
def test_the_work_is_linear_in_the_lines(name: str) -> None:
    head, again = GROWING[name], GROWING[name].rpartition("\n")[0].rpartition("\n")[2] + "\n"

    def run(size: int) -> None:
        file = source("Modelfile", head + again * size)
        for read in (kind_of, read_modelfile):
            with suppress(ConfigError):
                read(file)

    assert_linear(run, 50_000)


def test_a_value_ends_where_its_quote_ends() -> None:
    text = 'TEMPLATE """a"\n\n""""b\n  """  \nSYSTEM ""\nPARAMETER stop "\n"'
    assert [one.value for one in read_modelfile(source("Modelfile", text))] == ['a"\n\n""""b\n  ', "", "\n"]
