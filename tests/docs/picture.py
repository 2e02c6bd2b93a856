"""Draw docs/segments.svg from a real render: the messages of a request, and the segments of two prompts.

``.venv/bin/python -m tests.docs.picture`` writes the file; tests/docs/test_picture.py compares it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import gateway

MESSAGES = [{"role": "system", "content": "Answer with a number."}, {"role": "user", "content": "1+1=?"}]
TEMPLATES = ("sft-demo", "chatml")
PICTURE = Path(__file__).resolve().parent.parent.parent / "docs/segments.svg"

WIDTH, CHARACTER, LINE, LEFT = 480, 8.4, 30, 20
"""Sizes in pixels."""
SCAFFOLD, CONTENT = "#d8e4f8", "#ffe1b3"
STYLE = "text{fill:#1b1f24}.h{font:bold 15px sans-serif}.n{font:13px sans-serif}.p{font:14px monospace;white-space:pre}"


def draw() -> str:
    """Return the picture as SVG."""
    parts, y = [*_heading("The client sends messages", LEFT, 30)], 44
    for message in MESSAGES:
        _, boxes = _box(message["content"], CONTENT, LEFT + 80, y)
        parts += [f'<text class="n" x="{LEFT}" y="{y + 17}">{message["role"]}</text>', *boxes]
        y += LINE
    for name in TEMPLATES:
        y += 26
        parts += _heading(f"The model receives one string: template {name}", LEFT, y)
        y += 14
        x = float(LEFT)
        for segment in gateway.load_template(name).render(MESSAGES).segments or ():
            for piece in segment.text.splitlines(keepends=True):
                x, boxes = _box(piece, SCAFFOLD if segment.scaffold else CONTENT, x, y)
                parts += boxes
                if piece.endswith("\n"):
                    x, y = float(LEFT), y + LINE
        y += LINE if x > LEFT else 0
    y += 14
    for x, color, words in ((LEFT, CONTENT, "from the client"), (LEFT + 150, SCAFFOLD, "from the template")):
        parts += [
            f'<rect x="{x}" y="{y}" width="16" height="16" fill="{color}"/>',
            f'<text class="n" x="{x + 22}" y="{y + 13}">{words}</text>',
        ]
    height = y + 32
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" aria-labelledby="title description">',
            '<title id="title">One conversation, rendered with two templates</title>',
            f'<desc id="description">{escape(_description())}</desc>',
            f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _heading(text: str, x: float, y: float) -> list[str]:
    return [f'<text class="h" x="{x}" y="{y}">{escape(text)}</text>']


def _box(text: str, color: str, x: float, y: float) -> tuple[float, list[str]]:
    """Return where the box ends, and the box: a text without its line break, which is shown as an arrow."""
    shown = text.replace("\n", "⏎")
    width = round(len(shown) * CHARACTER, 1)
    return round(x + width + 4, 1), [
        f'<rect x="{x}" y="{y}" width="{width + 2:.1f}" height="24" rx="3" fill="{color}"/>',
        f'<text class="p" x="{x + 1}" y="{y + 17}" textLength="{width}" xml:space="preserve">{escape(shown)}</text>',
    ]


def _description() -> str:
    prompts = [f"{name}: {gateway.load_template(name).render(MESSAGES).text!r}" for name in TEMPLATES]
    return "The same two messages as prompts. " + "; ".join(prompts)


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
