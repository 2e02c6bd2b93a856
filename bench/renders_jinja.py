"""How many prompts a second does our chat template renderer make, and ``transformers``' own, in one run?

``python -m bench.renders_jinja SECONDS --transformers PYTHON``: measured in turns, ours and theirs, so that
a machine with other work slows both. ``PYTHON`` is one that has ``transformers`` (no torch needed).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# theirs runs this file alone
from conversation import conversation, per_second  # type: ignore[import-not-found]  # noqa: E402
from interpreter import (  # type: ignore[import-not-found]  # noqa: E402
    OtherPython,
    build,
    build_of,
    check_same,
    report,
)

TEMPLATES = HERE.parent / "tests" / "template" / "huggingface" / "templates"
FAMILIES = ("chatml", "headers", "turns", "thinking", "generation")
TURNS = (1, 10, 50)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ROUNDS = 3


def messages_of(turns: int) -> list[dict[str, str]]:
    """The conversation as a client sends it."""
    return [{"role": role, "content": text} for role, text in conversation(turns)]


def ours(family: str, turns: int) -> Any:
    """A call that renders once, by the gateway."""
    from bench.renders import asked
    from gateway.core.dialogue import Dialogue
    from gateway.template.registry import build
    from gateway.template.validation.template import parse_spec

    source = (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")
    template = build(parse_spec({"kind": "jinja", "template": source, "special_tokens": TOKENS}, name=family))
    dialogue = Dialogue(asked(turns))
    return lambda: template.render(dialogue).text


def theirs(family: str, turns: int) -> Any:
    """A call that renders once, by ``apply_chat_template``."""
    import transformers
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
        chat_template=(TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8"),
        **TOKENS,
    )
    messages = messages_of(turns)
    return lambda: tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def measured(make: Any, seconds: float) -> dict[str, float]:
    """Renders a second by family and turns."""
    return {f"{family} x{turns}": per_second(make(family, turns), seconds) for family in FAMILIES for turns in TURNS}


def main() -> None:
    """Print a line for each cell: ours, theirs, the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, help="for each cell and round")
    parser.add_argument("--transformers", metavar="PYTHON", help="a Python that has transformers")
    parser.add_argument(
        "--any-python", action="store_true", help="go on if theirs is another build of Python than ours"
    )
    parser.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.theirs:
        print(report(measured(theirs, args.seconds)))
        return
    if args.transformers and not args.any_python:
        try:
            check_same("transformers", build_of(args.transformers))
        except OtherPython as error:
            sys.exit(str(error))
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(ROUNDS):
        peer: dict[str, float] = {}
        if args.transformers:
            command = [args.transformers, str(Path(__file__).resolve()), str(args.seconds), "--theirs"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
            said = json.loads(done.stdout.splitlines()[-1])
            peer, python = said["numbers"], said["python"]
        rounds.append((measured(ours, args.seconds), peer))
    if args.transformers and python != build():
        print(f"theirs on {python}, ours on {build()}: the ratios compare the Pythons, too")
    for cell in rounds[0][0]:
        mine = median(one[cell] for one, _ in rounds)
        other = median(peer[cell] for _, peer in rounds) if args.transformers else 0.0
        ratio = f"{other:10.0f}/s  {mine / other:5.2f} x" if other else ""
        print(f"{cell:16} {mine:10.0f}/s {ratio}")


if __name__ == "__main__":
    main()
