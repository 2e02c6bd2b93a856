"""What identifies a model: the log probabilities of fixed texts, or the answers to them at temperature 0."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.cli.options import CommandError
from gateway.core.errors import GatewayError
from gateway.stream.prompt_logprobs import PROMPT_LOGPROBS, echoed_logprobs, listed_logprobs
from gateway.workshop.engine.subject import EngineProbe, Subject, expect, require

FORMAT = "meta-gateway engine check 1"
TEXTS = (
    "The quick brown fox jumps over the lazy dog, and 12+34=46.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))\n",
    "Wasser kocht bei 100 Grad; 水在一百度沸腾。 Water boils at 212 °F.",
)
"""The texts whose tokens are scored."""
MOST, MEAN = 0.25, 0.05
"""The tolerance of one log probability, and of their mean difference.

A logit between 16 and 32 has steps of 0.125 in bfloat16, so another GPU, kernel or batch can move a log probability by
one or two steps; it does not move most of them.
"""


async def _fingerprint(subject: Subject) -> dict[str, Any]:
    """Return the scores of all texts in the strongest way that the engine has, or its answers to them."""
    for way in [way for way in (PROMPT_LOGPROBS, "echo") if way in subject.known and not subject.chat]:
        with suppress(GatewayError):
            return {"way": way, "texts": [await _scores(subject, text, way) for text in TEXTS]}
    return {"way": "answers", "texts": [[((await subject.generate(text=text)).text, 0)] for text in TEXTS]}


async def _scores(subject: Subject, text: str, way: str) -> list[tuple[str, float]]:
    """Return the tokens of a text, with their log probabilities, without a first token that has none."""
    params = {PROMPT_LOGPROBS: 0} if way == PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
    completion = (await subject.generate({"max_tokens": 1, **params}, text)).completion
    tokens = listed_logprobs(completion) if way == PROMPT_LOGPROBS else echoed_logprobs(completion, text)
    return [(token.token, token.logprob) for token in tokens if token.logprob is not None]


def read_report(path: Path) -> dict[str, Any]:
    """Return a saved report. Raises ``CommandError`` for any other file."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        texts = [[float(score) for _, score in text] for text in saved["fingerprint"]["texts"]]
        found = saved["format"], len(texts), all(texts), {*map(type, (saved["model"], saved["fingerprint"]["way"]))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"--against {path}: is not a report of --save ({error!r})") from None
    if found != (FORMAT, len(TEXTS), True, {str}):
        raise CommandError(f"--against {path}: is not a report of --save ({FORMAT}); make it again with --save")
    return dict(saved)


async def _same_model(subject: Subject) -> str:
    subject.fingerprint = now = await _fingerprint(subject)
    if (saved := subject.saved) is None:
        return f"saved: {now['way']} of {len(TEXTS)} texts"
    way, since = saved["fingerprint"]["way"], f"since {saved.get('date')} ({saved.get('engine')})"
    require(way == now["way"], f"the report has {way}, and the engine has {now['way']} now; {since}")
    pairs = list(zip(saved["fingerprint"]["texts"], now["texts"], strict=True))
    changed = sum([[token for token, _ in one] != [token for token, _ in other] for one, other in pairs])
    what = "answers at temperature 0" if way == "answers" else "lists of tokens"
    expect(not changed, f"{changed} of {len(pairs)} {what} are others {since}")
    moved = [abs(a[1] - b[1]) for one, other in pairs for a, b in zip(one, other, strict=True)]
    most, mean = max(moved), sum(moved) / len(moved)
    found = f"{len(moved)} log probabilities differ by at most {most:.4f} (tolerance {MOST}), on average {mean:.4f}"
    found = f"the same {what} {since}" if way == "answers" else f"{found} (tolerance {MEAN}) {since}"
    expect(most <= MOST and mean <= MEAN, found)
    return found


CHANGED = "the engine has other weights, another precision or another tokenizer than in the report"
SAME_MODEL = EngineProbe("same model", len(TEXTS) + 2, CHANGED, _same_model)
