"""Prompts that the gateway renders per second: ``python -m bench.rendering.render_gateway SECONDS`` (for each cell)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import orjson

from bench.rendering.inputs import (
    CONTEXT,
    FAMILIES,
    INSTRUCTION,
    META_TEMPLATES,
    PROMPTERS,
    TOOLS,
    TURNS,
    WITH_SLOT,
    WITH_TOOLS,
    calls_per_second,
    conversation,
)
from bench.rendering.python_build import result_json
from gateway.wire.json import parse_object
from gateway.wire.requests import read_chat
from metatemplate.files.reader import Files
from metatemplate.files.template import parse_spec
from metatemplate.files.template_file import read_template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import DEFAULT_OPTIONS, Dialogue, Message, RenderOptions

SLOT_TEMPLATE = {"kind": "prompter", "class": "chat", "marks_of": "qwen", "instruction": INSTRUCTION}


def load_template_spec(name: str) -> TemplateSpec:
    """Read a file of ``meta_templates/``."""
    path = META_TEMPLATES / f"{name}.yaml"
    files = Files(META_TEMPLATES.parent)
    spec = read_template(files, path, name, files.add_problem(path))
    assert spec is not None, files.problems
    return spec


def request_messages(turns: int) -> Sequence[Message]:
    """The conversation as read from a chat request."""
    body = orjson.dumps({"model": "m", "messages": conversation(turns)})
    dialogue = read_chat(parse_object(body), request_id="req_1").dialogue
    assert dialogue is not None
    return dialogue.messages


def main() -> None:
    """Print renders per second by template and turns, and the Python build, as one line of JSON."""
    seconds = float(sys.argv[1])
    templates = {name: build(load_template_spec(name)) for name in (*FAMILIES, *PROMPTERS)}
    # DEFAULT_OPTIONS itself, as in a chat request: the fast paths compare its identity
    cells = [(name, template, DEFAULT_OPTIONS) for name, template in templates.items()]
    cells += [
        (WITH_SLOT, build(parse_spec(SLOT_TEMPLATE, name="slot")), RenderOptions(variables={"context": CONTEXT})),
        (WITH_TOOLS, templates[PROMPTERS[0]], RenderOptions(tools=tuple(TOOLS))),
    ]
    metrics: dict[str, float] = {}
    for name, template, options in cells:
        for turns in TURNS:
            dialogue = Dialogue(request_messages(turns), options)
            # .text joins the segments, as for a target that takes one string
            metrics[f"{name} x{turns}"] = calls_per_second(lambda d=dialogue, t=template: t.render(d).text, seconds)  # type: ignore[misc]
    print(result_json(metrics))


if __name__ == "__main__":
    main()
