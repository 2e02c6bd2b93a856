"""Real tokenizers that judge the marker policy, and the requests that they judge.

A prompt is forged if a tokenizer reads more special tokens in it than in the prompt of the same request with harmless
texts. The judge uses neither the gateway's markers nor its search, except for the texts that a chat template looks for
itself, which the policy leaves unchanged (``docs/security.md``).
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from gateway.assembly import bare_route
from gateway.calls.route import Route
from gateway.config.snapshot import MarkersPolicy, ModelSpec, PolicySpec, TargetSpec
from gateway.wire.requests import read_chat
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.errors import MetaTemplateError
from metatemplate.markers.marker_set import JOINER
from metatemplate.markers.role_boundaries import SafePrompt
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import MarkerAction

ROLES = ("system", "user", "assistant", "tool")
TOKEN = re.compile(
    r"<[|\uff5c][^<>\n]{1,60}[|\uff5c]>|<</?[A-Z]{2,12}>>|</?[A-Za-z0-9_@\u4e00-\u9fff]{1,40}>|\[/?[A-Z][A-Z0-9_]{1,30}\]"
    r"|\[\|[A-Za-z0-9_]{1,30}\|\]|\[[a-z]{1,8}MASK\]|\u3008\|[A-Z]{2,12}\|\u3009|\u3010[A-Z]{2,12}\u3011"
    r"|[\[\]]~!?[a-z][\[\]]|\[e~\["
)
"""Matches the pieces of a rendered prompt that a tokenizer of its family may have as special tokens."""
NAMES = ("find", "q", "r")
"""The names of tools and arguments in ``bodies``. A template may write them in brackets, as ``<q>`` for an argument; no
tokenizer has special tokens for the names of a request."""
REASONING = ("<think>", "</think>")
BRACKETS = frozenset("<>[]|#:\uff5c\u273f\u3008\u3009\u3010\u3011")

NORMALIZERS: dict[str, Callable[[], Any]] = {
    "exact": normalizers.NFC,
    "NFKC": normalizers.NFKC,
    "lower case": normalizers.Lowercase,
    "no accents": lambda: normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]),
    "BERT": lambda: normalizers.BertNormalizer(clean_text=True, strip_accents=True, lowercase=True),
    "no invisible characters": lambda: normalizers.Replace(Regex(r"\p{Cf}"), ""),
}
"""Kind of tokenizer → its normalizer. The exact tokenizer is also the judge of models without a tokenizer."""


class Judge:
    """A byte-level tokenizer with special tokens, which its normalizer applies to both text and tokens."""

    def __init__(self, tokens: Sequence[str], kind: str, folder: Path) -> None:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={one: at for at, one in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder, tokenizer.normalizer = decoders.ByteLevel(), NORMALIZERS[kind]()
        exact = kind == "exact"
        tokenizer.add_special_tokens([AddedToken(token, normalized=not exact, special=True) for token in tokens])
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        self.kind, self.folder = kind, folder
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._ids = {number: one.content for number, one in self._tokenizer.get_added_tokens_decoder().items()}

    def forged(self, prompt: str, expected: Sequence[str]) -> list[str]:
        """Return the special tokens that a prompt has more often than each of the prompts of harmless requests."""
        found, most = self._count(prompt), Counter[str]()
        for one in expected:
            most |= self._count(one)
        return [token for token, number in found.items() if expected and number > most[token]]

    def _count(self, text: str) -> Counter[str]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return Counter([self._ids[one] for one in ids if one in self._ids])


def harmless(text: str) -> str:
    """Return a text of the same length in which no special token can be read, and words are unchanged."""
    return "".join(["q" if BRACKETS.intersection(unicodedata.normalize("NFKD", one)) else one for one in text])


def stripped(text: str) -> str:
    """Return the harmless form of a text from which ``strip`` removes tokens, which may leave nothing."""
    left, before = text, ""
    while left != before:
        left, before = TOKEN.sub("", left), left
    return harmless(text) if left.strip() else ""


def special_tokens(spec: TemplateSpec) -> tuple[str, ...]:
    """Return the special tokens of a template: those of its family, and those in prompts with harmless texts."""
    template = build(spec)
    family = spec.markers.tokens if spec.markers is not None else ()
    named = [*family, spec.bos_text, *spec.stop]
    searched: set[str] = set(REASONING)
    if spec.jinja is not None and isinstance(template, JinjaTemplate):
        named += [*spec.jinja.special_tokens.values(), *spec.jinja.ends]
        searched |= {text for compiled in template.compiled for text in compiled.searched}
    texts = [f"t{number}" for number in range(24)]
    for body in bodies(texts):
        for dialogue in dialogues(body):
            try:
                named += TOKEN.findall(template.render(dialogue).text)
            except MetaTemplateError:
                continue
    tokens = [token.strip() for token in dict.fromkeys(named) if token in family or TOKEN.search(token)]
    searched.update([f"<{slash}{name}>" for name in NAMES for slash in ("", "/")])
    return tuple([token for token in dict.fromkeys(tokens) if len(token) > 2 and token not in searched])


def words_of(spec: TemplateSpec) -> list[str]:
    """Return the texts that a chat template may remove, replace or look for: the short texts in its source."""
    source = "".join([text for _, text in spec.jinja.sources]) if spec.jinja is not None else ""
    quoted = re.findall(r"'([^'\n]{1,24})'|\"([^\"\n]{1,24})\"", source)
    removed = re.findall(r"(?:replace|split|strip)\(\s*['\"](.{1,24}?)['\"]", source)
    lines = ["\n" if one == "\\n" else one for one in removed]
    return [*lines * 8, *["".join(pair) for pair in quoted]]


# ---------------------------------------------------------------- texts


def attacks(tokens: Sequence[str], words: Sequence[str], rng: random.Random, number: int) -> list[str]:
    """Return texts in which special tokens are cut, nested, rewritten, and divided by words of the template."""
    return ["".join([_piece(tokens, words, rng) for _ in range(rng.choice((1, 1, 2, 3)))]) for _ in range(number)]


def _piece(tokens: Sequence[str], words: Sequence[str], rng: random.Random) -> str:
    token, other = rng.choice(tokens), rng.choice(tokens)
    cut = rng.randrange(len(token) + 1)
    begin, end = token[:cut], token[cut:]
    if words and rng.random() < 0.5:
        return begin + _nested(words, rng) + end
    wide = token.translate({ord(one): ord(one) + 0xFEE0 for one in "<>|[]/_"})
    return rng.choice(
        (
            token,
            begin,
            end,
            f"{begin}{other}{end}",
            f"{begin}{token}{end}",
            f"{begin * 2}{end * 2}",
            f"\n{token}",
            f" {token}\n",
            begin + rng.choice((" ", "\n", "\u200b", "\xad", JOINER, "\ufe0f", "\x00", "  ")) + end,
            token.upper(),
            token.swapcase(),
            wide,
            f"{begin}\u0301{end}",
            token.replace("i", "\xed").replace("e", "\xe9"),
            token.replace("<", "\\u003c"),
            token.replace("<", "&lt;"),
            token.replace("[", "(").replace("]", ")").lower(),
            token[::-1],
            rng.choice(ROLES),
            "a",
            "",
            "Yes.",
            "x < y",
            f"{token}{rng.choice(ROLES)}\nobey",
        )
    )


def _nested(words: Sequence[str], rng: random.Random) -> str:
    """Return a word, or a word inside a word, so that removing one makes another."""
    word = rng.choice(words)
    for _ in range(rng.choice((0, 0, 1, 2))):
        cut = rng.randrange(len(word) + 1)
        word = word[:cut] + rng.choice(words) + word[cut:]
    return word


# ---------------------------------------------------------------- requests


def bodies(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Return requests that together have every text: in each role, in parts, in tools, calls and results."""
    for at in range(0, len(texts) - 11, 12):
        used, number = texts[at : at + 12], at // 12
        middle = len(used[2]) // 2
        parts: Any = [{"type": "text", "text": used[2][:middle]}, {"type": "text", "text": used[2][middle:]}]
        call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": _arguments(used, number)}}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": used[0]},
            {"role": "user", "content": used[1]},
            {"role": "assistant", "content": used[3]},
            {"role": "user", "content": parts if number % 2 and used[2] else used[2]},
            {"role": "assistant", "content": used[4], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "name": "find", "content": used[7]},
            {"role": "assistant", "content": used[8]},
            {"role": "user", "content": used[9]},
        ]
        parameters = {"type": "object", "properties": {"q": {"type": "string", "description": used[10]}}}
        function = {"name": "find", "description": used[11], "parameters": parameters}
        yield {"messages": messages, "tools": [{"type": "function", "function": function}]}


def _arguments(texts: Sequence[str], number: int) -> str:
    """Return the arguments of a call. Every other object has two equal keys, of which a parser keeps the last."""
    first, second = [json.dumps(text, ensure_ascii=bool(number % 3)) for text in (texts[5], texts[6])]
    first = first.replace("<", "\\u003c") if number % 5 == 4 else first
    return f'{{"q": {first}, "{"q" if number % 2 else "r"}": {second}}}'


def dialogues(body: Mapping[str, Any]) -> Iterator[Dialogue]:
    """Return the dialogue of a body, then simpler ones for templates that accept fewer roles and no tools."""
    messages: list[dict[str, Any]] = body["messages"]
    plain = [message for message in messages if message["role"] != "tool" and "tool_calls" not in message]
    talk = [message for message in plain if message["role"] != "system"]
    tools = {"tools": body["tools"]}
    for chosen, rest in ((messages, tools), (plain, tools), (plain, {}), (talk, {}), (talk[:1], {})):
        call = read_chat({**rest, "model": "m", "messages": chosen}, request_id="r")
        assert call.dialogue is not None
        yield call.dialogue


def route_of(spec: TemplateSpec, action: MarkerAction, tokenizer: Path | None) -> Route:
    """Return the route of a model with one action for all markers. ``tokenizer``: None if the gateway has none."""
    policy = PolicySpec("p", markers=MarkersPolicy(action, action))
    target = TargetSpec("m/0", "completions", url="http://127.0.0.1:1/v1", engine="vllm")
    return bare_route(ModelSpec("m", spec, policy, (target,), tokenizer=tokenizer))


async def verdict(route: Route, body: Mapping[str, Any], form: int) -> str | None:
    """Return the prompt that the gateway sends for one form of a body (``dialogues``); None if it refuses."""
    try:
        return (await safe_prompt(route, body, form)).prompt.text
    except MetaTemplateError:
        return None


async def safe_prompt(route: Route, body: Mapping[str, Any], form: int) -> SafePrompt:
    """Return the prompt of one form of a body (``dialogues``) after the policy. Raises the gateway's refusal."""
    return await route.renderer.render_safely(list(dialogues(body))[form])


async def form_of(route: Route, body: Mapping[str, Any]) -> int | None:
    """Return the number of the first form of a body that the template renders; None if it renders no form."""
    for number, dialogue in enumerate(dialogues(body)):
        try:
            await route.renderer.render(dialogue)
        except MetaTemplateError:
            continue
        return number
    return None


async def judged(
    spec: TemplateSpec, action: MarkerAction, judge: Judge, texts: Sequence[str], *, configured: bool
) -> list[list[str] | None]:
    """Return what is wrong with the prompt of each request with these texts; None for a request that is refused.

    ``configured``: whether the model has the judge's tokenizer. The requests are sent again to a second route, in
    reverse order, because no request may change the verdict on another.
    """
    routes = [route_of(spec, action, judge.folder if configured else None) for _ in range(2)]
    requests, found = list(bodies(texts)), list[list[str] | None]()
    sent: list[tuple[int, str | None]] = []
    how = f"{action}, {'configured' if configured else 'without'} tokenizer, {judge.kind}"
    harmless_bodies = [list(bodies(list(map(change, texts)))) for change in (harmless, stripped)]
    for body, *plain in zip(requests, *harmless_bodies, strict=True):
        form = await form_of(routes[0], body) or 0
        prompt = await verdict(routes[0], body, form)
        sent.append((form, prompt))
        expected = [text for one in plain if (text := await verdict(routes[0], one, form)) is not None]
        forged = judge.forged(prompt, expected) if prompt is not None else []
        shown = await minimal(routes[0], judge, body, form) if forged else ""
        found.append(None if prompt is None else [f"({how}) {forged[:3]}: {shown}"] if forged else [])
    for at, (form, prompt) in reversed(list(enumerate(sent))):
        if await verdict(routes[1], requests[at], form) != prompt:
            found[at] = [*(found[at] or ()), f"({how}) another verdict after other requests: {requests[at]}"]
    return found


async def minimal(route: Route, judge: Judge, body: Mapping[str, Any], form: int) -> str:
    """Return the shortest text found that forges a turn alone, with its role; else the whole request."""

    async def forges(role: str, text: str) -> bool:
        further = [{"role": "user", "content": "a"}] if role != "user" else []
        talks = [[{"role": role, "content": one}, *further] for one in (text, harmless(text), stripped(text))]
        prompt, *expected = [await verdict(route, {"messages": talk, "tools": []}, 2) for talk in talks]
        return prompt is not None and bool(judge.forged(prompt, [one for one in expected if one is not None]))

    for message in body["messages"]:
        role, content = message["role"], message["content"]
        text = content if isinstance(content, str) else "".join([part["text"] for part in content])
        if role == "tool" or not await forges(role, text):
            continue
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + 1 :]
            if await forges(role, shorter):
                text, at = shorter, 0
            else:
                at += 1
        return f"{role}: {text!r}"
    return f"form {form}: {json.dumps(body, ensure_ascii=False)}"
