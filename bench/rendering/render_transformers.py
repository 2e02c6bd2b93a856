"""Chat templates that the gateway and ``transformers`` render per second, measured in one run.

``python -m bench.rendering.render_transformers SECONDS --transformers PYTHON``: both are measured in alternation, so
other work on the machine slows both. ``PYTHON`` is a Python with ``transformers`` installed (torch is not needed).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from statistics import median

from bench.rendering.inputs import calls_per_second, conversation
from bench.rendering.python_build import ROOT, DifferentPython, build_of, check_same_build, result_json, this_build

TEMPLATES = ROOT / "tests" / "template" / "huggingface" / "templates"
FAMILIES = ("chatml", "headers", "turns", "thinking", "generation")
TURNS = (1, 10, 50)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ROUNDS = 3

Render = Callable[[], object]


def gateway_render(source: str, turns: int) -> Render:
    """A function that renders once with the gateway."""
    from bench.rendering.render_gateway import request_messages
    from metatemplate.files.template import parse_spec
    from metatemplate.templates.registry import build
    from metatemplate.values.dialogue import Dialogue

    template = build(parse_spec({"kind": "jinja", "template": source, "special_tokens": SPECIAL_TOKENS}, name="t"))
    dialogue = Dialogue(request_messages(turns))
    return lambda: template.render(dialogue).text


def transformers_render(source: str, turns: int) -> Render:
    """A function that renders once with ``apply_chat_template``."""
    import transformers
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
        chat_template=source,
        **SPECIAL_TOKENS,
    )
    messages = conversation(turns)
    return lambda: tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def measure(make_render: Callable[[str, int], Render], seconds: float) -> dict[str, float]:
    """Renders per second by template and turns."""
    sources = {family: (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8") for family in FAMILIES}
    return {
        f"{family} x{turns}": calls_per_second(make_render(source, turns), seconds)
        for family, source in sources.items()
        for turns in TURNS
    }


def main() -> None:
    """Print one line per template and number of turns: gateway, transformers, ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, help="for each cell and round")
    parser.add_argument("--transformers", metavar="PYTHON", help="a Python with transformers installed")
    parser.add_argument("--any-python", action="store_true", help="accept another build of Python for transformers")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)  # measure transformers only
    args = parser.parse_args()
    if args.in_process:
        print(result_json(measure(transformers_render, args.seconds)))
        return
    if args.transformers and not args.any_python:
        try:
            check_same_build("transformers", build_of(args.transformers))
        except DifferentPython as error:
            sys.exit(str(error))
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    python = ""
    for _ in range(ROUNDS):
        theirs: dict[str, float] = {}
        if args.transformers:
            command = [
                args.transformers,
                "-m",
                "bench.rendering.render_transformers",
                str(args.seconds),
                "--in-process",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=ROOT)
            output = json.loads(done.stdout.splitlines()[-1])
            theirs, python = output["metrics"], output["python"]
        rounds.append((measure(gateway_render, args.seconds), theirs))
    if args.transformers and python != this_build():
        print(
            f"transformers on {python}, the gateway on {this_build()}: the ratios include the difference of the builds"
        )
    for cell in rounds[0][0]:
        gateway = median(ours[cell] for ours, _ in rounds)
        ratio = ""
        if args.transformers:
            other = median(theirs[cell] for _, theirs in rounds)
            ratio = f"{other:10.0f}/s  {gateway / other:5.2f} x"
        print(f"{cell:16} {gateway:10.0f}/s {ratio}")


if __name__ == "__main__":
    main()
