"""What does a Go template say, and does it make what Go would make of it?

The expected texts follow the documentation of Go's ``text/template``; the conversations at the end are those of
Ollama's own tests of its template package.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.importer.go.functions import Struct
from gateway.importer.go.render import render
from gateway.importer.go.syntax import parse
from gateway.importer.go.tree import GoError

DATA: dict[str, Any] = {
    "A": "a", "Empty": "", "N": 3, "L": ["x", "y", "z"], "None": [], "Yes": True,
    "M": [Struct(Role="user", Content="hi"), Struct(Role="assistant", Content="ho")],
}  # fmt: skip

TEXTS = {
    "text": ("a { b } c", "a { b } c"),
    "a field": ("<{{ .A }}>", "<a>"),
    "without blanks": ("<{{.A}}>", "<a>"),
    "a missing field": ("{{ .Gone }}", "<no value>"),
    "a number and a truth": ("{{ .N }} {{ .Yes }}", "3 true"),
    "trimmed on both sides": ("a \n{{- .A -}}\n b", "aab"),
    "a minus that is a number": ("{{ eq -1 -1 }}", "true"),
    "a comment": ("a{{/* }} no */}}b", "ab"),
    "a comment that trims": ("a {{- /* no */ -}} b", "ab"),
    "texts in quotes": (r'{{ "q\"\n\x41é" }}{{ `r\n` }}', 'q"\nA\u00e9r\\n'),
    "a text with braces": ('{{ "}}" }}', "}}"),
    "if": ("{{ if .A }}y{{ end }}{{ if .Empty }}n{{ end }}", "y"),
    "else": ("{{ if .Empty }}n{{ else }}y{{ end }}", "y"),
    "else if": ("{{ if .Empty }}1{{ else if .None }}2{{ else if .A }}3{{ else }}4{{ end }}", "3"),
    "with": ("{{ with .A }}<{{ . }}>{{ end }}{{ with .Empty }}{{ else }}no{{ end }}", "<a>no"),
    "else with": ("{{ with .Empty }}1{{ else with .A }}{{ . }}{{ end }}", "a"),
    "a raw text loses its carriage returns": ("{{ `a\r\nb\r` }}", "a\nb"),
    "nil as an argument": ("{{ not nil }}", "true"),
    "a keyword before a bracket or a field": ("{{if(.A)}}y{{end}}{{range.L}}{{.}}{{end}}", "yxyz"),
    "range": ("{{ range .L }}{{ . }},{{ end }}", "x,y,z,"),
    "range with else": ("{{ range .None }}{{ . }}{{ else }}none{{ end }}", "none"),
    "range with a place": ("{{ range $i, $v := .L }}{{ $i }}{{ $v }}{{ end }}", "0x1y2z"),
    "range with one name": ("{{ range $v := .L }}{{ $v }}{{ end }}", "xyz"),
    "range that sets a variable of the outside": (
        '{{ $x := "" }}{{ range $x = .L }}{{ end }}{{ $x }}{{ $i := 7 }}{{ range $i, $x = .L }}{{ end }}{{ $i }}', "z2",
    ),
    "the largest number": ("{{ eq 9223372036854775807 9223372036854775807 }}", "true"),
    "numbers that part late": ("{{ eq 1234567890123456781 1234567890123456782 }}", "false"),
    "a comment that begins like its end": ("a{{/*/ no */}}b", "ab"),
    "escapes": (r'{{ "\x41\101\u00e9\U0001F600" }}', "AA\u00e9\U0001F600"),
    "break and continue": (
        '{{ range .L }}{{ if eq . "y" }}{{ continue }}{{ end }}{{ . }}{{ if eq . "z" }}{{ break }}{{ end }}{{ end }}',
        "xz",
    ),
    "fields of a struct": ("{{ range .M }}{{ .Role }}:{{ .Content }} {{ end }}", "user:hi assistant:ho "),
    "the top inside a range": ("{{ range .M }}{{ $.A }}{{ end }}", "aa"),
    "a variable": ('{{ $x := "v" }}{{ $x }}', "v"),
    "a variable that is set inside": ('{{ $x := "" }}{{ range .L }}{{ $x = . }}{{ end }}{{ $x }}', "z"),
    "a variable of the inside": ('{{ $x := "o" }}{{ if .A }}{{ $x := "i" }}{{ $x }}{{ end }}{{ $x }}', "io"),
    "eq of many": ('{{ eq .A "b" "a" }}', "true"),
    "and, or, not": ('{{ and .A .Empty }}|{{ or .Empty .A }}|{{ not .A }}', "|a|false"),
    "and stops early": ("{{ and .Empty (index .None 5) }}", ""),
    "ordered": ("{{ lt 1 2 }}{{ ge 1 2 }}{{ ne 1 2 }}", "truefalsetrue"),
    "brackets": ("{{ if and (eq .A \"a\") (not .Empty) }}y{{ end }}", "y"),
    "len, index and slice": ("{{ len .L }}{{ index .L 1 }}{{ len (slice .L 1) }}{{ len (slice .L 0 1) }}", "3y21"),
    "len of a text counts bytes": ('{{ len "é" }}', "2"),
    "a pipe": ("{{ .L | len }}{{ .A | eq \"a\" }}", "3true"),
    "printf": ('{{ printf "%s-%s" .A .A }}', "a-a"),
    "a field of what brackets give": ("{{ (index .M 1).Content }}", "ho"),
    "the last one": (
        "{{ range $i, $_ := .M }}{{ $last := eq (len (slice $.M $i)) 1 }}{{ $last }} {{ end }}", "false true ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("template", "text"), TEXTS.values(), ids=TEXTS)
def test_a_template_makes_its_text(template: str, text: str) -> None:
    assert render(parse(template), DATA) == text


REFUSED = {
    "an octal number": ("{{ 010 }}", 1, "010 begins with a zero"),
    "no octal number": ("{{ -08 }}", 1, "-08 begins with a zero"),
    "a digit of another script": ("{{ \u0663 }}", 1, "is not read here"),
    "a letter of another script": ("{{ .A\u00b2 }}", 1, "is not read here"),
    "half a number": ("{{ .5 }}", 1, "'.' and '5' touch"),
    "a number with an exponent": ("{{ eq 1e3 1 }}", 1, "'1' and 'e3' touch"),
    "a field and a text": ('{{ eq .A"a" }}', 1, "touch: a blank parts operands"),
    "a function and a bracket": ("{{ not(.A) }}", 1, "touch: a blank parts operands"),
    "or of nothing": ("{{ or }}", 1, "`or` needs something"),
    "nil alone": ("{{ nil }}", 1, "`nil` stands alone"),
    "nil in a pipe": ("{{ nil | not }}", 1, "`nil` stands alone"),
    "an order of truths": ("{{ lt true false }}", 1, "they have none"),
    "else with of an if": ("{{ if .Empty }}{{ else with .A }}{{ end }}", 1, "write else, or else if with"),
    "else if of a with": ("{{ with .Empty }}{{ else if .A }}{{ end }}", 1, "write else, or else with with"),
    "a keyword and a number": ("{{ if1 }}{{ end }}", 1, "the function `if1` is not read"),
    "a keyword and a variable": ("{{ if$ }}{{ end }}", 1, "a blank follows `if`"),
    "a comment behind a blank": ("{{ /* no */ }}", 1, "is not read here"),
    "a comment before a blank": ("{{/* no */ }}", 1, "between a comment and"),
    "never closed": ("a\n{{ .A", 2, "never closed"),
    "a comment never closed": ("{{/* a", 1, "a comment is never closed"),
    "an if never closed": ("\n{{ if .A }}", 2, "`if` is never closed"),
    "an end too many": ("{{ end }}", 1, "without anything that it belongs to"),
    "an empty action": ("{{ }}", 1, "an action is empty"),
    "define": ('\n\n{{ define "a" }}{{ end }}', 3, "`define` is not read"),
    "an unknown function": ("{{ toUpper .A }}", 1, "the function `toUpper` is not read here"),
    "a character": ("{{ eq .A 'a' }}", 1, "is not read here"),
    "json without tools": ("\n{{ json .A }}", 2, "`json` is used without tools"),
    "a field that a struct has not": ("{{ range .M }}\n{{ .System }}{{ end }}", 2, ".System is no field here"),
    "a variable that nobody set": ("{{ $x }}", 1, "$x has no value here"),
    "a variable that is set too early": ('{{ $x = "a" }}', 1, "set before it is declared"),
    "different types": ('{{ eq .N "3" }}', 1, "different types"),
    "an index too high": ("{{ index .L 7 }}", 1, "not there"),
    "a range over a text": ("{{ range .A }}{{ end }}", 1, "no list"),
    "a list that is printed": ("{{ .L }}", 1, "no text"),
    "break outside": ("{{ break }}", 1, "outside of a range"),
    "a bracket never closed": ("{{ (len .L }}", 1, "never closed"),
    "a number beyond 64 bits": ("\n{{ eq 9223372036854775808 1 }}", 2, "beyond 64 bits"),
    "a number without end": ("{{ eq " + "9" * 9_000 + " 1 }}", 1, "beyond 64 bits"),
    "text behind a comment": ("{{/* no */ .A }}", 1, "between a comment and"),
    "a comment that does not trim": ("{{/* no */-}} a", 1, "between a comment and"),
    "text behind break": ("{{ range .L }}{{ break .A }}{{ end }}", 1, "`break` stands alone"),
    "two variables": ("{{ $a, $b := .L }}", 1, "sets 2 variables"),
    "two variables of an if": ("{{ if $a, $b := .L }}{{ end }}", 1, "sets 2 variables"),
    "three variables": ("{{ range $a, $b, $c := .L }}{{ end }}", 1, "sets 3 variables"),
    "two variables in brackets": ("{{ range ($a, $b := .L) }}{{ end }}", 1, "sets 2 variables"),
    "a variable with a field": ("{{ $a.b := .L }}", 1, "$a.b is no name"),
    "range that sets what nobody declared": ("{{ range $x = .L }}{{ end }}", 1, "set before it is declared"),
    "a byte of a character": (r'{{ "\xc3\xa9" }}', 1, r"\xc3 is a part of a character"),
    "an octal byte": (r'{{ "\351" }}', 1, r"\351 is a part of a character"),
    "half a character": (r'{{ "\ud800" }}', 1, r"\ud800 is no escape"),
    "no character": (r'{{ "\UFFFFFFFF" }}', 1, "is no escape"),
    "no escape": (r'{{ "\q" }}', 1, r"\q is no escape"),
    "else twice": ("{{ if .A }}{{ else }}\n{{ else }}{{ end }}", 2, "`else` does not belong to the `if`"),
    "else if of a range": ("{{ range .L }}{{ else if .A }}{{ end }}", 1, "does not belong to the `range`"),
    "too few arguments": ("{{ not }}", 1, "cannot take"),
    "nested too deeply": ("{{ if .A }}" * 60 + "{{ end }}" * 60, 1, "nests deeper than 40"),
    "brackets nested too deeply": ("{{ " + "(" * 60 + ".A" + ")" * 60 + " }}", 1, "deeper than 40"),
    "too long": ("a" * 70_000, 1, "65536 are the most"),
    "too many steps": ("{{ range $.L }}" * 12 + "a" + "{{ end }}" * 12, 0, "steps"),
}  # fmt: skip


@pytest.mark.parametrize(("template", "line", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_followed_is_refused_with_its_line(template: str, line: int, says: str) -> None:
    with pytest.raises(GoError) as caught:
        render(parse(template), DATA)
    assert says in caught.value.message
    assert caught.value.line == line


def test_a_text_that_grows_without_end_is_stopped() -> None:
    source = '{{ $x := "aaaaaaaaaaaaaaaa" }}' + "{{ $x = print $x $x }}" * 30 + "{{ $x }}"
    with pytest.raises(GoError):
        render(parse(source), {})
