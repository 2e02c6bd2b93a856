"""How many prompts a second do our renderers make? ``python -m bench.renders SECONDS``, for each cell."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import orjson

from bench.conversation import (
    CALLS,
    CONTEXT,
    FAMILIES,
    INSTRUCTION,
    PROMPTERS,
    SLOT,
    TEMPLATES,
    TOOLS,
    TURNS,
    conversation,
    per_second,
)
from bench.interpreter import report
from gateway.config.files.reader import Files
from gateway.config.sections.templates import read_template
from gateway.core.dialogue import Dialogue, Message, RenderOptions
from gateway.template.base import Template
from gateway.template.registry import build
from gateway.template.validation.template import parse_spec
from gateway.wire.requests import read_chat

SLOTTED = {"kind": "prompter", "class": "chat", "marks_of": "qwen"}


def asked(turns: int) -> Sequence[Message]:
    """The conversation as the gateway's reader hands it to a template."""
    body = orjson.dumps(
        {"model": "m", "messages": [{"role": role, "content": text} for role, text in conversation(turns)]}
    )
    dialogue = read_chat(orjson.loads(body), request_id="req_1", received=0.0).dialogue
    assert dialogue is not None
    return dialogue.messages


def main() -> None:
    """Print one line of JSON: renders a second by family and turns, and the Python."""
    seconds = float(sys.argv[1])
    numbers: dict[str, float] = {}
    made: dict[str, Template] = {}
    for family in (*FAMILIES, *PROMPTERS):
        path = TEMPLATES / f"{family}.yaml"
        files = Files(TEMPLATES.parent)
        spec = read_template(files, path, family, files.add_problem(path))
        assert spec is not None, files.problems
        template = made[family] = build(spec)
        for turns in TURNS:
            dialogue = Dialogue(asked(turns))
            # .text joins the segments, which is what a string target is sent
            numbers[f"{family} x{turns}"] = per_second(lambda d=dialogue, t=template: t.render(d).text, seconds)  # type: ignore[misc]
    slotted = build(parse_spec({**SLOTTED, "instruction": INSTRUCTION}, name="slotted"))
    for turns in TURNS:
        filled = Dialogue(asked(turns), RenderOptions(variables={"context": CONTEXT}))
        numbers[f"{SLOT} x{turns}"] = per_second(lambda d=filled: slotted.render(d).text, seconds)  # type: ignore[misc]
        called = Dialogue(asked(turns), RenderOptions(tools=tuple(TOOLS)))
        numbers[f"{CALLS} x{turns}"] = per_second(lambda d=called: made[PROMPTERS[0]].render(d).text, seconds)  # type: ignore[misc]
    print(report(numbers))


if __name__ == "__main__":
    main()
