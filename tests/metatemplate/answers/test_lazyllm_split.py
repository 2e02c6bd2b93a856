"""The streamed ``lazyllm`` format, compared with LazyLLM's own split of a finished answer on random texts.

``extract_calls`` gives the bytes of LazyLLM itself. Where none of ``DIFFERENCES`` is in play both find the same calls,
and the same content in front of them. ``docs/tools.md`` lists each difference, and one text shows it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metatemplate.answers.tool_calls.format import ParsedCall, UnparsedCall
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.answers.tool_calls.scanner import Scanner
from metatemplate.values.answer_markers import ToolTokens
from tests.stream.slicing import sliced
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.json5 import NotJson5, read_json5
from tests.support.reference.lazyllm.tool_calls import ToolTokens as ReferenceTokens
from tests.support.reference.lazyllm.tool_calls import extract_calls

FAMILIES = {
    "qwen": ToolTokens("<|action_start|><|function|>", "<|args|>", "<|action_end|>"),
    "internlm2": ToolTokens("<|function|>", "<|args|>", "<|action_end|>"),
    "glm": ToolTokens("✿FUNCTION✿: ", "✿ARGS✿: ", "\n"),
    "no args token": ToolTokens("<|plugin|>", "", "<|end|>"),
    "no tokens": ToolTokens(),
}
NAMES = frozenset({"add", "now", "get_weather", "calc-1"})
KEYS = ("parameters", "arguments")
TEXTS = 500
"""For each family."""

Split = tuple[str, list[tuple[Any, Any]]]
"""(content, calls)"""


# ---------------------------------------------------------------- what models may write

SAID = [
    "", "hello", " ", "\n", "\n\n", "I add.\n", "你好🙂", "a { b", "\r\n", "{", "}", "[1]", "name", "add", "add\n",
    "\nadd\n", "now\n", " add\n", '{"x": 1}\n', "\u2028", "<", "<|", "x\n", "'", '"',
]  # fmt: skip
GOOD = ['{"a": 1}', "{}", '{"a": [1, {"b": null}], "c": "x\\ny"}', '{"é": "你好🙂"}', "{'a': 1}", "{a: 1,}"]
VALUES = [
    *GOOD, '{"a": "<|args|>"}', '{"a": "{"}', '{"a":\n 1}', '{"a": "\\ud83d\\ude42"}', '{"a": 0x1F}', '{"a": .5}',
    "{'a': 'it\\'s'}", '"{\\"a\\": 1}"', json.dumps('"{\\"a\\": 1}"'),
    "[1]", "5", '"x"', "null", "", "x", '{"a": 1', '{"a": {"b": [}', '{"a": 1}}',
    '{"a": +1}', '{/* c */ "a": 1}', '{"a": 1} // c', '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}',
    '{"a": True}', '{"a": (1, 2)}', '{"a": 1, "a": 2}',
]  # fmt: skip
CALLED = [*sorted(NAMES), *sorted(NAMES), "", "  ", "rm", "工具", " add", "add "]
FORMS = [
    "{start}{name}{args}{value}{end}",
    "{start}{name}{args}{value}{end}",
    "{start}{name}\n{args}{value}\n{end}",
    "{start}\n{name}{args} {value} {end}",
    "{start}{name}{end}",
    "{start}{name}{args}{value}",
    "{start}{name}",
    "{start}{object}{end}",
    "{start}{object}",
    "\n{name}\n{value}",
    "\n{name}\n{value}\n",
    "\n{object}",
    "\n{object}\n",
    "\n  {object}\n",
    "\n[{object}]\n",
    "\n[{object}, {object}]\n",
    "\n{name}\n{object}\n",
    '\n{{name: "{name}"}}\n',
    '\n{{"name": "{name}", "x": 1}}\n',
    '\n{{"name": "{name}", "id": "c"}}',
    "{end}{args}",
    "{start}{start}{name}{end}",
    "{half}{name}{args}",
    "{start}",
    "{args}",
    "{end}",
    "{half}",
]
LINES = [form for form in FORMS if form.startswith("\n")]


def texts(family: str, seed: int) -> Iterator[str]:
    """Answers of up to three calls, most of them odd."""
    rng, tokens = random.Random(f"{family} {seed}"), FAMILIES[family]
    start, args, end = tokens.start or "<|f|>", tokens.args or "<|a|>", tokens.end or "<|e|>"
    for _ in range(TEXTS):
        pieces = [rng.choice(SAID)]
        for _ in range(rng.randint(0, 3)):
            name, value = rng.choice(CALLED), rng.choice(GOOD if rng.random() < 0.6 else VALUES)
            given = f'{{"name": "{name}", "{rng.choice(KEYS)}": {value or 0}}}'
            half = start[: rng.randint(1, len(start) - 1)]
            form = rng.choice(FORMS if tokens.start or rng.random() < 0.3 else LINES)
            pieces.append(form.format(start=start, args=args, end=end, name=name, value=value, object=given, half=half))
            pieces.append(rng.choice(SAID))
        yield "".join(pieces)


# ---------------------------------------------------------------- the two readings


def streamed(text: str, family: str, places: list[int]) -> Split:
    scanner = Scanner(FORMATS["lazyllm"](FAMILIES[family], NAMES), {name: {} for name in NAMES})
    pieces = [piece for part in sliced(text, places) for piece in scanner.feed(part)]
    pieces += scanner.end(stopped=True)
    content = "".join(p if isinstance(p, str) else p.text for p in pieces if isinstance(p, str | UnparsedCall))
    return content, [(p.name, json.loads(p.arguments)) for p in pieces if isinstance(p, ParsedCall)]


def reference(text: str, family: str) -> Split | None:
    """Content, and the calls that a client could use: of a tool there is, with an object; None: LazyLLM stumbles."""
    tokens = FAMILIES[family]
    try:
        found = extract_calls(text, ReferenceTokens(tokens.start, tokens.args, tokens.end), NAMES)
    except PrompterError:
        return None
    calls = [(call.name, unpacked(call.arguments)) for call in found.calls]
    return found.content, [(name, given) for name, given in calls if name in NAMES and isinstance(given, dict)]


def unpacked(value: Any) -> Any:
    while isinstance(value, str):
        try:
            value = read_json5(value.strip())
        except NotJson5:
            return None
    return value


# ---------------------------------------------------------------- the differences


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects that a text is, alone or in a list."""
    value = unpacked(text)
    yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))


def segments(text: str, tokens: ToolTokens) -> list[str]:
    return [part.strip() for part in text.split(tokens.start)[1:]] if tokens.start else []


def written(text: str, tokens: ToolTokens) -> Iterator[str]:
    """Where a call's object may stand: on a line, or behind a start token."""
    yield from text.split("\n")
    if not tokens.args:
        yield from (part.partition(tokens.end)[0] for part in segments(text, tokens))


def by_name(text: str) -> Iterator[tuple[str, str]]:
    """(a line that is a tool's name, all that follows), where an object follows."""
    lines = text.split("\n")
    for at, line in enumerate(lines[:-1]):
        if line.strip() in NAMES and lines[at + 1].startswith("{"):
            yield line, "\n".join(lines[at + 1 :])


def goes_on(text: str) -> bool:
    """Does an object with a name begin on a line, and not end on it?"""
    lines = text.split("\n")
    begun = [at for at, line in enumerate(lines) if line[:1] in ("{", "[") and unpacked(line) is None]
    return any('"name"' in "\n".join(lines[at:]) for at in begun)


def unclosed(text: str, tokens: ToolTokens) -> bool:
    parts = segments(text, tokens)
    for at, part in enumerate(parts):
        name, has_args, rest = part.partition(tokens.args) if tokens.args else ("", "-", part)
        value, ended, _ = rest.partition(tokens.end)
        if has_args and unpacked(value) is None:
            return True
        if not (ended if has_args else tokens.end in name) and at + 1 < len(parts):
            return True
        if not tokens.args and not ended:
            return True
    return False


def early(text: str, tokens: ToolTokens) -> bool:
    names = [part.partition(tokens.args)[0] for part in segments(text, tokens) if tokens.args and tokens.args in part]
    return any(tokens.end in name for name in names)


def other_keys(text: str, tokens: ToolTokens) -> bool:
    found = [given for place in written(text, tokens) for given in objects(place)]
    return any(given.keys() - {"name", "id", "type", *KEYS} or given.keys() >= {*KEYS} for given in found)


def mixed(text: str, tokens: ToolTokens) -> bool:
    if not tokens.start or tokens.start not in text:
        return False
    return bool(re.search(r"(^|\n)\s*[{\[]", text)) or any(by_name(text))


def mixed_list(text: str, tokens: ToolTokens) -> bool:
    for line in text.split("\n"):
        value = unpacked(line)
        given = list(objects(line)) if isinstance(value, list) and len(value) > 1 else []
        whole = [isinstance(unpacked(item.get(KEYS[0], item.get(KEYS[1], {}))), dict) for item in given]
        if given and not (all(whole) and all(item.get("name") in NAMES for item in given)):
            return True
    return False


ADD = ("add", {"a": 1})
DIFFERENCES: dict[str, tuple[Callable[[str, ToolTokens], object], tuple[str, str], Split, Split | None]] = {
    # what differs: (may it in this text?, an example, what is streamed, what LazyLLM makes of it)
    "both forms in one answer": (
        mixed,
        ("internlm2", '<|function|>add<|args|>{"a": 1}<|action_end|>\nnow\n{}'),
        ("", [ADD, ("now", {})]),
        ("", [ADD]),
    ),
    "a call that is not closed": (
        unclosed,
        ("internlm2", '<|function|>add<|args|>{"a": 1} Done.'),
        (" Done.", [ADD]),
        ("", []),
    ),
    "an args token within the arguments": (
        lambda text, tokens: tokens.args and any(part.count(tokens.args) > 1 for part in segments(text, tokens)),
        ("internlm2", '<|function|>add<|args|>{"a": "<|args|>"}<|action_end|>'),
        ("", [("add", {"a": "<|args|>"})]),
        ("", []),
    ),
    "an end before the arguments": (
        early,
        ("internlm2", "<|function|>now<|action_end|> Then <|args|>"),
        (" Then <|args|>", [("now", {})]),
        ("", []),
    ),
    "an args token that ends in a blank, and nothing behind it": (
        lambda text, tokens: (
            tokens.args and any(part.endswith(tokens.args.rstrip()) for part in segments(text, tokens))
        ),
        ("glm", "✿FUNCTION✿: now\n✿ARGS✿: "),
        ("✿FUNCTION✿: now\n✿ARGS✿: ", []),
        ("", [("now", {})]),
    ),
    "text behind arguments by name": (
        lambda text, tokens: any(not isinstance(unpacked(rest), dict) for _, rest in by_name(text)),
        ("no tokens", 'add\n{"a": 1}\nDone.'),
        ("\nDone.", [ADD]),
        ("", []),
    ),
    "calls by name, one right behind the other": (
        lambda text, tokens: reference(text, next(name for name in FAMILIES if FAMILIES[name] == tokens)) is None,
        ("no tokens", 'add\n{"a": 1}\nnow\n{}'),
        ("", [ADD, ("now", {})]),
        None,
    ),
    "blanks beside a name on its line": (
        lambda text, tokens: any(name != name.strip() for name, _ in by_name(text)),
        ("no tokens", 'add \n{"a": 1}'),
        ('add \n{"a": 1}', []),
        ("", [ADD]),
    ),
    "blanks before an object on its line": (
        lambda text, tokens: any(line[:1].isspace() and any(objects(line)) for line in text.split("\n")),
        ("no tokens", '  {"name": "add", "arguments": {"a": 1}}'),
        ('  {"name": "add", "arguments": {"a": 1}}', []),
        ("", [ADD]),
    ),
    "an object over several lines": (
        lambda text, tokens: goes_on(text),
        ("no tokens", '{"name": "add",\n "arguments": {"a": 1}}'),
        ("", [ADD]),
        ('{"name": "add",\n "arguments": {"a": 1}}', []),
    ),
    "other keys in an object": (
        other_keys,
        ("no tokens", '{"name": "add", "arguments": {"a": 1}, "why": "so"}'),
        ('{"name": "add", "arguments": {"a": 1}, "why": "so"}', []),
        ("", [ADD]),
    ),
    "a list of which not all is a call": (
        mixed_list,
        ("no tokens", '[{"name": "add", "arguments": {"a": 1}}, {"name": "rm"}]'),
        ('[{"name": "add", "arguments": {"a": 1}}, {"name": "rm"}]', []),
        ('[{"name": "add", "arguments": {"a": 1}}, {"name": "rm"}]', [ADD]),
    ),
    "JSON5 that Python does not write": (
        lambda text, tokens: re.search(r"//|/\*|NaN", text),
        ("internlm2", '<|function|>add<|args|>{/* c */ "a": 1}<|action_end|>'),
        ('<|function|>add<|args|>{/* c */ "a": 1}<|action_end|>', []),
        ("", [ADD]),
    ),
    "literals that JSON5 does not have": (
        lambda text, tokens: re.search(r"True|\(1", text),
        ("internlm2", '<|function|>add<|args|>{"a": True}<|action_end|>'),
        ("", [("add", {"a": True})]),
        ("", []),
    ),
    "a key that comes twice": (
        lambda text, tokens: '"a": 1, "a": 2' in text,
        ("no tokens", '{"name": "add", "arguments": {"a": 1, "a": 2}, }'),
        ('{"name": "add", "arguments": {"a": 1, "a": 2}, }', []),
        ("", [("add", {"a": 2})]),
    ),
    "values that JSON cannot carry": (
        lambda text, tokens: re.search(r"1e999|ud800", text),
        ("internlm2", '<|function|>add<|args|>{"a": 1e999}<|action_end|>'),
        ('<|function|>add<|args|>{"a": 1e999}<|action_end|>', []),
        ("", [("add", {"a": float("inf")})]),
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_one(name: str) -> None:
    in_play, (family, text), ours, theirs = DIFFERENCES[name]
    assert in_play(text, FAMILIES[family])
    assert streamed(text, family, []) == ours
    assert reference(text, family) == theirs


def test_each_difference_is_told() -> None:
    told = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8").lower()
    assert [name for name in DIFFERENCES if f"| {name.lower()} |" not in told] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_apart_from_the_differences_both_split_alike(family: str) -> None:
    rng, alike, with_calls = random.Random(family), 0, 0
    for text in texts(family, seed=1):
        ours = streamed(text, family, sorted(rng.choices(range(len(text) + 1), k=6)))
        assert ours == streamed(text, family, []), text
        if any(in_play(text, FAMILIES[family]) for in_play, *_ in DIFFERENCES.values()):
            continue
        theirs = reference(text, family)
        assert theirs is not None
        assert ours[1] == theirs[1], text
        assert begins(ours[0], theirs[0], text, marked=bool(segments(text, FAMILIES[family]))), text
        alike, with_calls = alike + 1, with_calls + bool(ours[1])
    assert alike > TEXTS / 3, "too few texts are compared"
    assert with_calls > TEXTS / 40


def begins(ours: str, theirs: str, text: str, *, marked: bool) -> bool:
    """Is the content in front of the calls the same? What LazyLLM drops behind them is content here, blanks are not."""
    if not marked:  # they are taken out of its middle, and the answer is trimmed
        rest = iter(ours)
        return all(character in rest for character in "".join(theirs.split()))
    return ours.startswith(theirs.rstrip()) and text.startswith(theirs)
