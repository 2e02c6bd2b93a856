"""``gateway render --as``: the prompt of one conversation, and the prompts that other engines make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.cli.options import CommandError
from gateway.config.snapshot import ModelSpec
from gateway.wire.requests import read_chat
from gateway.workshop.chat_folders import folder_of, read_chat_folder
from gateway.workshop.comparing.comparison import (
    Comparison,
    chat_template_reference,
    compare_with,
    model_chat_template,
    relative,
    with_clock,
)
from gateway.workshop.parity.cases import Case
from gateway.workshop.parity.engines import CHAT_TEMPLATE_ENGINES, LLAMACPP_CLOCK

NEEDED = "--as needs kind: jinja, or a model whose tokenizer folder has a chat template"
LLAMACPP_DEFAULTS = "llama.cpp sets enable_thinking and preserve_reasoning to true if nothing else sets them"


def compare_engines(
    model: ModelSpec, configured: ModelSpec | None, engines: Sequence[str], body: Mapping[str, Any]
) -> Comparison:
    """Render a chat request with the gateway, and its chat template with each engine. Raises ``CommandError``.

    A model without ``kind: jinja`` is compared with the chat template in its tokenizer folder. ``body``: the request
    without ``model``. ``configured``: see ``compare_with``.
    """
    for engine in engines:
        if engine not in CHAT_TEMPLATE_ENGINES:
            raise CommandError(f'--as: no engine "{engine}"; the engines are {", ".join(CHAT_TEMPLATE_ENGINES)}')
    dialogue = read_chat({**body, "model": model.name}, request_id="cli", answered=False).dialogue
    if dialogue is None:
        raise CommandError("--as needs messages; give messages instead of a dataset prompt")
    options = dialogue.options
    spec, name, folder = model.template, model.template.name, None
    if spec.jinja is None:
        file = model_chat_template(model, NEEDED)
        spec, name, folder = read_chat_folder(file).spec, relative(file), folder_of(file)
    assert spec.jinja is not None
    clock = LLAMACPP_CLOCK if "llama.cpp" in engines else spec.jinja.clock
    jinja = replace(spec.jinja, clock=clock, request_kwargs=tuple(options.template_kwargs))
    spec, model = replace(spec, jinja=jinja), with_clock(model, clock)
    conversation = Case(
        name="",
        messages=tuple([message.raw for message in dialogue.messages]),
        tools=() if options.tool_choice == "none" else options.tools,
        continue_final=options.continue_final,
        whole=options.whole,
        template_kwargs=options.template_kwargs,
    )
    found = []
    for engine in engines:
        reference = chat_template_reference(spec, name, folder, engine)
        found.append(compare_with(model, configured, reference, (replace(conversation, name=reference.engine),)))
    return replace(
        found[0],
        engine=f"the engines below; the time of all is {clock or 'the present time'}",
        results=tuple([result for one in found for result in one.results]),
        notes=(LLAMACPP_DEFAULTS,) if "llama.cpp" in engines else (),
        unit="engine",
    )
