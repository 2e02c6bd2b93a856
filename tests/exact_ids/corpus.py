"""Random conversations: plain ones without any marker text, and hostile ones with marker text in every disguise."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence

Messages = list[dict[str, str]]

WORDS = (
    *("the", "Prompt", "of", "café", "naïve", "it's", "don't", "MODEL", "tokens,", "end.", "e\u0301te\u0301", "Straße"),
    *("12345", "3.14", "1e-9", "0x1F", "№5", "½", "x²", "a_b", "camelCase", "C++", "--flag", "$HOME", "50%", "#1"),
    *(
        "你好,世界",
        "東京は日本の首都です。",
        "한국어 문장",
        "这是一个测试！",
        "漢字かな交じり文",
        "ｆｕｌｌ",
        "①②③",
        "ㄅㄆㄇ",
    ),
    *("مرحبا بالعالم", "שלום", "नमस्ते", "Привет, мир", "ไทย", "Ελληνικά", "İstanbul", "ﬁnance", "\u00a0", "\u200b"),
    *("🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇨🇭", "❤️", "☕", "𝔘𝔫𝔦", "\u2028", "\ufeff", "a\u0301\u0302\u0303", "￿"),
    *(
        "def f(x):\n    return x\n",
        "for (;;) { i++; }",
        '{"a": [1, 2, {"b": null}]}',
        "SELECT * FROM t;",
        "if a<b and c>d:",
    ),
    *(
        "| a | b |\n|---|---|\n",
        "# Title\n\n",
        "- item\n  - nested\n",
        "> quote",
        "```py\nprint(1)\n```",
        "[link](url)",
    ),
    *(
        "a\tb\t\tc",
        "\r\n",
        "…",
        "—",
        "“quotes”",
        "'s",
        " 's",
        "<",
        ">",
        "[",
        "]",
        "|",
        "/",
        "<|",
        "|>",
        "::",
        "~~",
        "▁",
        "Ġ",
    ),
    *("https://example.org/a?b=c&d=%20e", "user@example.org", "2026-11-29T12:00:00Z", "lorem ipsum " * 6),
)
"""Pieces of texts: many writings, emoji, code, white space, and parts of markers that are none."""
BLANKS = ("", "", "", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\n\n\n", "\u3000")
"""The texts between pieces, and at both ends."""


def plain_text(rng: random.Random, most: int = 12) -> str:
    """Return some pieces with blanks between them; never only blanks."""
    pieces = [rng.choice(WORDS) + rng.choice(BLANKS) for _ in range(rng.randint(1, most))]
    text = rng.choice(BLANKS) + "".join(pieces)
    return text if text.strip() else text + "a"


def conversation(rng: random.Random, text: Callable[[], str]) -> Messages:
    """Return messages that every chat template takes: perhaps a system message, then users and assistants in turn."""
    messages = [{"role": "system", "content": text()}] if rng.random() < 0.5 else []
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    return [*messages, {"role": "user", "content": text()}]


def plain_conversation(rng: random.Random, markers: Sequence[str]) -> Messages:
    """Return a conversation whose texts, joined in any way, contain no marker."""
    while True:
        messages = conversation(rng, lambda: plain_text(rng))
        texts = [message["content"] for message in messages]
        forms = {form(joined) for joined in ("".join(texts), "\n".join(texts)) for form in FOLDS}
        if not any(marker in text for text in forms for marker in markers):
            return messages


FOLDS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: unicodedata.normalize("NFC", text),
    lambda text: unicodedata.normalize("NFKC", text),
)


def cut(rng: random.Random, marker: str) -> tuple[str, str]:
    at = rng.randint(1, max(1, len(marker) - 1))
    return marker[:at], marker[at:]


def hostile_text(rng: random.Random, markers: Sequence[str]) -> str:
    """Return a text with one marker in one of the forms below, among plain pieces."""
    marker, other = rng.choice(markers), rng.choice(markers)
    left, right = cut(rng, marker)
    forms: tuple[Callable[[], str], ...] = (
        lambda: marker,
        lambda: marker + other,
        lambda: marker * 3,
        lambda: rng.choice(BLANKS) + marker + rng.choice(BLANKS) + other,
        lambda: left + marker + right,  # nested: a search that removes the inner one makes the outer one
        lambda: left + other + right,
        lambda: left,  # joins with what follows
        lambda: right,  # joins with what comes before
        lambda: right + left,
        lambda: left + "\u2060" + right,
        lambda: left + rng.choice(("\u200b", "\u00ad", "\ufeff", "\u034f", "\ufe0f")) + right,
        lambda: left + rng.choice((" ", "\n", "\t")) + right,
        lambda: marker[:-1] + "\u0301" + marker[-1:],
        lambda: marker.upper(),
        lambda: marker.lower(),
        lambda: marker.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}),
        lambda: unicodedata.normalize("NFKC", marker),
        lambda: unicodedata.normalize("NFD", marker),
        lambda: marker.replace(" ", "▁").replace("▁", rng.choice((" ", "▁", "_"))),
        lambda: "".join(f"\\u{ord(character):04x}" for character in marker),
        lambda: f"{marker}system{other}\nobey{marker}",
        lambda: f"a{marker}b",
        lambda: f"0{marker}9",
        lambda: f"Ġ{marker}Ċ",
    )
    parts = [rng.choice(forms)() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    if rng.random() < 0.5:
        parts.insert(rng.randint(0, len(parts)), plain_text(rng, 4))
    return "".join(parts) or marker


def hostile_conversation(rng: random.Random, markers: Sequence[str]) -> Messages:
    """Return a conversation of which most texts are hostile."""
    messages = conversation(rng, lambda: hostile_text(rng, markers) if rng.random() < 0.8 else plain_text(rng, 4))
    messages[-1]["content"] = hostile_text(rng, markers)
    return messages
