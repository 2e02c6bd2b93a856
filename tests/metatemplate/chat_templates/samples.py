"""Chat templates and requests that several tests speak about."""

from __future__ import annotations

import copy
import json
from typing import Any

from gateway.wire.requests import read_chat
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.files.template import parse_spec
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def jinja(source: str = CHATML, **keys: Any) -> JinjaTemplate:
    """A renderer for the text of a chat template."""
    template = build(parse_spec({"kind": "jinja", "template": source, **keys}, name="sample"))
    assert isinstance(template, JinjaTemplate)
    return template


def dialogue(body: dict[str, Any]) -> Dialogue:
    """The dialogue of a request's body."""
    call = read_chat({"model": "m", **body}, request_id="r")
    assert call.dialogue is not None
    return call.dialogue


def body_of(case: dict[str, Any]) -> dict[str, Any]:
    """A case of ``cases.py`` as a client sends it: arguments as JSON text, variables in their field."""
    messages = copy.deepcopy(case["messages"])
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    body: dict[str, Any] = {"messages": messages, "chat_template_kwargs": case["kwargs"]}
    if case["tools"]:
        body["tools"] = case["tools"]
    if case["continue_final"]:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body
