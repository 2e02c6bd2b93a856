"""Describes a run: the data, the options, and the gateway's rendering of the first row for each model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson

from gateway.cli.call_options import KEY_HINT
from gateway.cli.options import CommandError
from gateway.evaluate.running.ask import RetryLimits, ask
from gateway.evaluate.running.gateways import GatewayClient
from gateway.evaluate.running.rows import CHAT_PATH, DataRow, DataSurvey, RowForm

RENDER = "/v1/render"
DESCRIBED = (
    "template",
    "dataset_prompt",
    "policy",
    "params",
    "stop",
    "stop_token_ids",
    "bos",
    "n",
    "notices",
    "prompt_sha256",
)
"""The fields of a rendering that belong to the identity of a run."""
ANY_MESSAGES = [{"role": "user", "content": "hello"}]
"""The conversation that is rendered for a model without chat rows, to find out the model's template and policy."""
REFUSED_FOR_ALL_ROWS = (401, 404)


async def identity(gateway: GatewayClient, survey: DataSurvey, form: RowForm, limits: RetryLimits) -> dict[str, Any]:
    """Return the facts about a run that must be the same in all runs on one output file.

    The first chat row of each model is rendered. Its prompt hash changes with the template, the dataset prompt and the
    examples. Raises ``CommandError`` if a row cannot be rendered, because most other rows would then fail as well.
    """
    models: dict[str, Any] = {}
    for (url, model), row in sorted(survey.first.items(), key=lambda item: item[0][0] != CHAT_PATH):
        if url == CHAT_PATH:
            models[model] = await _render(gateway, row, row.body, limits, form)
        elif model not in models:
            body: dict[str, Any] = {"model": model, "messages": ANY_MESSAGES}
            if form.prompt is not None:  # the prompts of a choice
                body = {"model": model, "gateway": {"prompt": row.body["prompt"]}}
            models[model] = await _render(gateway, row, body, limits, form, required=False)
    return {**form_facts(survey, form), "models": models}


def form_facts(survey: DataSurvey, form: RowForm) -> dict[str, Any]:
    """Return the part of ``identity`` for which no gateway is asked."""
    return {
        "data_sha256": survey.sha256,
        "rows": survey.rows,
        "model": form.model,
        "prompt": form.prompt,
        "infer": form.infer,
        "turns": form.turns if form.infer == "multiturn" else None,
        "examples_sha256": sha256(orjson.dumps(form.examples)).hexdigest() if form.examples else None,
        "params": dict(form.params),
        "keep": list(form.keep),
        **({"send": list(form.send)} if form.send else {}),
        **({"evidence": True} if form.evidence else {}),
    }


async def _render(
    gateway: GatewayClient,
    row: DataRow,
    body: Mapping[str, Any],
    limits: RetryLimits,
    form: RowForm,
    *,
    required: bool = True,
) -> dict[str, Any]:
    """Render the body of a chat request, and return the fields ``DESCRIBED``. Errors name the line of ``row``, or the
    ``--param`` that is refused.

    ``required``: whether the model must accept chat requests. If not, a refusal returns only the error's code.
    """
    line, answered = await ask(gateway, replace(row, custom_id="", url=RENDER, body=body), limits)
    value = orjson.loads(line)
    response = value["response"] or {"status_code": 0, "body": value}
    if answered:
        return {name: response["body"].get(name) for name in DESCRIBED}
    error = (response["body"].get("error") if isinstance(response["body"], dict) else None) or {}
    if required or response["status_code"] in REFUSED_FOR_ALL_ROWS:
        reason = f"{error['code']}: {error['message']}" if error else f"status {response['status_code']}"
        if response["status_code"] == 401:
            reason += KEY_HINT
        code = 2 if error.get("code") == "model_not_found" else 1  # 2: the command line or a row is wrong
        raise CommandError(f"{_place(error.get('param'), row, form)}: {reason}", code)
    return {"not_rendered": error.get("code")}


def _place(param: str | None, row: DataRow, form: RowForm) -> str:
    """Return where the refused field of a request was set: on the command line, or in the data."""
    field = re.split(r"[.\[]", param or "", maxsplit=1)[0]
    return f"--param {field}" if field in form.params else f"line {row.line} cannot be rendered"
