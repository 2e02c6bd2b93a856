"""The pages that render a conversation: for one model, or for two models whose prompts are compared.

Both pages call ``/v1/render`` in this process, with the same admission, rights and limits as over HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gateway.calls.admission.access import visible_models
from gateway.calls.admission.facts import RequestFacts
from gateway.calls.service import GatewayState, Service
from gateway.core.caller import Caller
from gateway.core.errors import InvalidJson
from gateway.viewer.page import Page, PageRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.prompt.differences import differences
from gateway.viewer.prompt.view import prompt_text, result_views, settings
from gateway.wire.error_object import error_object
from metatemplate.tokenizer import Tokenizer

FIELDS = ("model", "model_b", "conversation", "tools", "variables", "dataset_prompt", "row", "parameters", "plain")
"""The names of the form's fields."""
JSON_MESSAGES = re.compile(r"\s*\[\s*\{")
"""Matches a conversation that is JSON. Any other text is the text of one user message."""
FIELD_OF = {
    "model": "model",
    "messages": "conversation",
    "tools": "tools",
    "gateway.variables": "variables",
    "gateway.prompt.id": "dataset_prompt",
    "gateway.prompt": "row",
    "prompt": "row",
    "variables": "variables",
}
"""Beginning of the parameter that an error names → the field of the form. Other parameters are in ``parameters``."""


class FormPages:
    """What the pages with the form of a conversation share."""

    def __init__(self, state: GatewayState, threads: PageThreads) -> None:
        self._state = state
        self._threads = threads
        self._service = Service(state)


class PromptPages(FormPages):
    """The page ``/viewer/prompt``: the exact prompt of a conversation."""

    async def page(self, asked: PageRequest) -> Page:
        """Return the form, and for a posted form the rendered prompt or the error."""
        values = form_values(self._state, asked)
        results: list[dict[str, Any]] = []
        if asked.form is not None and asked.visitor.caller is not None:
            try:
                body = await rendered(self._service, asked.visitor.caller, request_body(values["typed"]))
                tokens = tokenizer_of(self._state, body["model"])
                results = await self._threads.run(asked.visitor.key, result_views, body, tokens)
            except CallRefused as refused:
                values["error"] = refused.values
        return Page("prompt/prompt.html", {**values, "results": results})


class ComparePages(FormPages):
    """The page ``/viewer/compare``: the prompts of two models for one conversation."""

    async def page(self, asked: PageRequest) -> Page:
        """Return the form, and for a posted form both prompts and their differences, or the error."""
        values, compared = form_values(self._state, asked), None
        typed = values["typed"]
        others = [name for name in values["models"] if name != (typed["model"] or values["models"][0])]
        typed["model_b"] = typed["model_b"] or next(iter(others), typed["model"])
        if asked.form is not None and asked.visitor.caller is not None:
            models, field = (typed["model"], typed["model_b"]), "model"
            try:
                one = await rendered(self._service, asked.visitor.caller, request_body(typed, models[0]))
                field = "model_b"
                other = await rendered(self._service, asked.visitor.caller, request_body(typed, models[1]))
                prompts = single_prompt(one), single_prompt(other)
                found = await self._threads.run(asked.visitor.key, differences, *prompts)
                compared = {"models": models, **found, "settings": settings((one, other))}
            except CallRefused as refused:
                error = refused.values
                values["error"] = error | ({"field": field} if error["field"] == "model" else {})
        return Page("prompt/compare.html", {**values, "compared": compared})


class CallRefused(Exception):
    """The call has no prompt. ``values``: the error's message, code and parameter, and the field of the form."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        names = [name for name in FIELD_OF if (error["param"] or "").startswith(name)]
        default = "" if error["param"] is None else "parameters"
        self.values = {**error, "field": FIELD_OF[max(names, key=len)] if names else default}


async def rendered(service: Service, caller: Caller, body: Mapping[str, Any]) -> Any:
    """Return the answer of ``/v1/render`` to a body. Raises ``CallRefused``."""
    kept = await service.keep_answer("/v1/render", json.dumps(body).encode("ascii"), RequestFacts(caller=caller))
    answer = json.loads(kept.body)
    if kept.status != 200:
        raise CallRefused(answer["error"])
    return answer


def form_values(state: GatewayState, asked: PageRequest) -> dict[str, Any]:
    """Return the values of the form: what was typed, and the choices of this visitor. A query fills an empty form."""
    stack, caller = state.stack, asked.visitor.caller
    given = asked.query if asked.form is None else asked.form
    typed = {name: given.get(name, "").replace("\r\n", "\n") for name in FIELDS}  # browsers send CRLF
    typed["plain"] = "yes" if "plain" in given else ""
    return {
        "problem": asked.visitor.problem if caller is None else "",
        "typed": typed,
        "models": [] if caller is None else visible_models(stack, caller),
        "dataset_prompts": [] if caller is None else list(stack.snapshot.prompts),
        "needs_key": stack.keyring.needed,
        "error": None,
    }


def request_body(typed: Mapping[str, str], model: str | None = None) -> dict[str, Any]:
    """Return the body of the chat request that the fields of the form describe. Raises ``CallRefused``."""
    body: dict[str, Any] = {"model": typed["model"] if model is None else model}
    parameters = _json(typed, "parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise _invalid("parameters", 'not a JSON object; write for example {"temperature": 0}')
    options: dict[str, Any] = {}
    if typed["dataset_prompt"]:
        options["prompt"] = {"id": typed["dataset_prompt"], "variables": _json(typed, "row") or {}}
    else:
        body["messages"] = conversation(typed["conversation"])
    body |= {"tools": tools} if (tools := _json(typed, "tools")) is not None else {}
    options |= {"variables": variables} if (variables := _json(typed, "variables")) is not None else {}
    return {**body, **({"gateway": options} if options else {}), **(parameters or {})}


def conversation(text: str) -> Any:
    """Return the messages that a person has typed: JSON, or the text of one user message. Raises ``CallRefused``."""
    if JSON_MESSAGES.match(text):
        return _json({"conversation": text}, "conversation")
    return [{"role": "user", "content": text}]


def _json(typed: Mapping[str, str], name: str) -> Any:
    """Return the value of a field with JSON; None if the field is empty. Raises ``CallRefused``."""
    if not typed[name].strip():
        return None
    try:
        return json.loads(typed[name])
    except json.JSONDecodeError as error:
        raise _invalid(name, f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError):
        raise _invalid(name, "the JSON is nested too deep, or has a number with too many digits") from None


def _invalid(field: str, message: str) -> CallRefused:
    refused = CallRefused(error_object(InvalidJson(f"{field}: {message}", param=field))["error"])
    refused.values["field"] = field
    return refused


def single_prompt(body: Mapping[str, Any]) -> list[str]:
    """Return the prompt of an answer as segments. Raises ``CallRefused`` for a prompt of several turns or labels."""
    if "turns" in body or "labels" in body:
        raise _invalid("dataset_prompt", "it has several prompts, for turns or labels; show them on the page Prompt")
    return [one["text"] for one in body.get("segments") or ()] or [prompt_text(body)]


def tokenizer_of(state: GatewayState, model: str) -> Tokenizer | None:
    """Return the tokenizer of a model. None if the gateway does not have it, or after a reload without the model."""
    route = state.stack.routes.get(model)
    return None if route is None else route.tokens
