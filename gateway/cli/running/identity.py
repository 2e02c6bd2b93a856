"""Describes a run: the data, the options, and what the gateway makes of the first row for each model."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.cli.options import CommandError
from gateway.cli.running.ask import RetryLimits, ask
from gateway.cli.running.gateways import GatewayClient
from gateway.cli.running.rows import CHAT, DataRow, DataSurvey, RowForm

RENDER = "/v1/render"
DESCRIBED = ("template", "policy", "params", "stop", "stop_token_ids", "bos", "n", "notices", "prompt_sha256")
"""The fields of a rendering that belong to the identity of a run."""


async def identity(gateway: GatewayClient, survey: DataSurvey, form: RowForm, limits: RetryLimits) -> dict[str, Any]:
    """Return what must not change between two runs on one output file.

    The first chat row of each model is rendered. Its prompt hash changes with the template, the dataset prompt and the
    examples. Raises ``CommandError`` if a row cannot be rendered, since most other rows would then fail as well.
    """
    return {
        "data_sha256": survey.sha256,
        "rows": survey.rows,
        "model": form.model,
        "prompt": form.prompt,
        "infer": form.infer,
        "params": dict(form.params),
        "keep": list(form.keep),
        "models": {
            model: await _render(gateway, row, limits) for (url, model), row in survey.first.items() if url == CHAT
        },
    }


async def _render(gateway: GatewayClient, row: DataRow, limits: RetryLimits) -> dict[str, Any]:
    probe = DataRow(custom_id=row.custom_id, line=row.line, url=RENDER, body=row.body)
    line, answered = await ask(gateway, probe, limits)
    value = orjson.loads(line)
    response = value["response"]
    if answered:
        return {name: response["body"].get(name) for name in DESCRIBED}
    body = {} if response is None else response["body"]
    error = value["error"] or (body.get("error") if isinstance(body, dict) else None) or {}
    reason = f"{error.get('code')}: {error.get('message')}" if error else f"status {response['status_code']}"
    raise CommandError(f"line {row.line} cannot be rendered: {reason}", 1)
