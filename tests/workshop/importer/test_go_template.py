"""Plain Go templates are rendered by Ollama's rules; all others are refused with their line."""

from __future__ import annotations

import pytest

from gateway.workshop.importer.go_template import GoTemplateError, parse
from metatemplate.templates.registry import dialogue_of
from metatemplate.templates.spec import Example

SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}
ANSWER, AGAIN = {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Bye"}
CONVERSATION = (SYSTEM, USER, ANSWER, AGAIN)

EXCHANGES = (
    "{{ if .System }}<s>{{ .System }}</s>{{ end }}{{ if .Prompt }}<u>{{ .Prompt }}</u>{{ end }}<a>{{ .Response }}</a>"
)
MESSAGES = """{{- range .Messages }}
{{- if eq .Role "system" }}<s>{{ .Content }}</s>
{{- else if eq .Role "user" }}<u>{{ .Content }}</u>
{{- else }}<a>{{ .Content }}</a>
{{- end }}
{{- end }}<a>"""

# name: (template, messages, text); worked out by hand from Ollama's Execute and collate
RENDERED: dict[str, tuple[str, tuple[dict[str, str], ...], str]] = {
    "exchange by exchange": (EXCHANGES, CONVERSATION, "<s>Be kind.</s><u>Hi</u><a>Ho</a><u>Bye</u><a>"),
    "all at once": (MESSAGES, CONVERSATION, "<s>Be kind.</s><u>Hi</u><a>Ho</a><u>Bye</u><a>"),
    "the role as it is": (
        "{{ range .Messages }}<{{ .Role }}>{{ .Content }}{{ end }}<assistant>",
        (USER,),
        "<user>Hi<assistant>",
    ),
    "loop variables that are not used": (
        "{{ range $i, $_ := .Messages }}{{.Content}} {{ end }}",
        (USER, ANSWER),
        "Hi Ho ",
    ),
    "continue": (
        '{{ range .Messages }}{{ if eq .Role "system" }}S{{ continue }}{{ end }}{{ .Content }}{{ end }}',
        (SYSTEM, USER),
        "SHi",
    ),
    "cut behind the response": ("<u>{{ .Prompt }}</u><a>{{ .Response }}</a>!", (USER,), "<u>Hi</u><a>"),
    "no response in the template": ("<u>{{ .Prompt }}</u>", (USER, ANSWER, AGAIN), "<u>Hi</u>Ho<u>Bye</u>"),
    "a response inside an if": ("{{ .Prompt }}{{ if .Prompt }}[{{ .Response }}]{{ end }}!", (USER,), "Hi["),
    "a response in a branch that is not taken": (
        "{{ .Prompt }}{{ if .System }}{{ .Response }}{{ end }}!",
        (USER,),
        "Hi",
    ),
    "neighbours are joined": (MESSAGES, (USER, AGAIN), "<u>Hi\n\nBye</u><a>"),
    "system messages are joined": (EXCHANGES, (SYSTEM, SYSTEM, USER), "<s>Be kind.\n\nBe kind.</s><u>Hi</u><a>"),
    "a late system message": (
        EXCHANGES,
        (USER, ANSWER, SYSTEM, AGAIN),
        "<u>Hi</u><a>Ho</a><s>Be kind.</s><u>Bye</u><a>",
    ),
    "an answer to be continued": (EXCHANGES, (USER, ANSWER), "<u>Hi</u><a>Ho"),
    "the system text before a loop": (
        "[{{ .System }}]{{ range .Messages }}{{ end }}",
        (SYSTEM, USER, SYSTEM),
        "[Be kind.\n\nBe kind.]",
    ),
    "an else": ("{{ if .System }}{{ .System }}{{ else }}Me.{{ end }}{{ .Prompt }}", (USER,), "Me.Hi"),
    "an if inside an if that does not hold": (
        "{{ if .System }}a{{ if .Prompt }}b{{ else }}c{{ end }}{{ else }}d{{ end }}",
        (USER,),
        "d",
    ),
    "trimming and comments": ("a \n{{- .Prompt -}}\n b {{- /* c */ -}} c", (USER,), "aHibc"),
    "braces that are text": ("{ {{ .Prompt }} }{{ .Response }}", (USER,), "{ Hi }"),
}


@pytest.mark.parametrize(("template", "messages", "text"), RENDERED.values(), ids=RENDERED)
def test_a_conversation_is_rendered_by_ollamas_rules(
    template: str, messages: tuple[dict[str, str], ...], text: str
) -> None:
    assert parse(template).render(dialogue_of(Example(messages))) == text


REFUSED = {  # name: (template, line, part of the message)
    "a variable": ('a\n{{ $x := "" }}', 2, '{{ $x := "" }} is not supported here'),
    "a function": ("\n\n{{ len .Prompt }}", 3, "is not supported here"),
    "tools": ("{{ if .Tools }}{{ end }}", 1, "import the folder with the model's tokenizer instead"),
    "a test of messages": ("{{ if .Messages }}{{ end }}", 1, "is not supported here"),
    "a field of the loop outside of it": ("{{ .Role }}", 1, "is not supported here"),
    "a field of the outside in the loop": ("{{ range .Messages }}\n{{ .System }}{{ end }}", 2, "is not supported here"),
    "a role outside of the loop": ('{{ if eq .Role "user" }}{{ end }}', 1, "is not supported here"),
    "two loops": ("{{ range .Messages }}{{ end }}{{ range .Messages }}{{ end }}", 1, "is not supported here"),
    "a loop inside an if": ("{{ if .System }}{{ range .Messages }}{{ end }}{{ end }}", 1, "is not supported here"),
    "continue outside of the loop": ("{{ continue }}", 1, "is not supported here"),
    "an end without an if": ("{{ end }}", 1, "is not supported here"),
    "an else without an if": ("{{ else }}", 1, "is not supported here"),
    "else twice": ("{{ if .System }}{{ else }}\n{{ else }}{{ end }}", 2, "is not supported here"),
    "an action without end": ("a\n{{ .Prompt", 2, "{{ is not closed"),
    "an if without end": ("\n{{ if .System }}", 2, "this `if` or `range` has no {{ end }}; add {{ end }}"),
    "a loop without end": ("{{ range .Messages }}", 1, "this `if` or `range` has no {{ end }}; add {{ end }}"),
    "an empty action": ("{{}}{{-}}", 1, "is not supported here"),
    "a prompt beside messages": (
        "{{ .Prompt }}{{ range .Messages }}{{ end }}",
        1,
        ".Prompt is empty in a template with .Messages",
    ),
    "a response before an else": ("{{ if .Prompt }}{{ .Response }}{{ else }}x{{ end }}", 1, ".Response before an else"),
}


@pytest.mark.parametrize(("template", "line", "part"), REFUSED.values(), ids=REFUSED)
def test_a_template_that_is_not_plain_is_refused_with_its_line(template: str, line: int, part: str) -> None:
    with pytest.raises(GoTemplateError) as caught:
        parse(template)
    assert part in str(caught.value)
    assert caught.value.line == line
