"""Policy files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.files.reader import Files, ProblemMaker
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.names import quote
from gateway.config.schema.settings import POLICY
from gateway.config.schema.validation import INVALID, check
from gateway.config.snapshot import DeliveryPolicy, MediaPolicy, ParamsPolicy, PolicySpec
from gateway.wire.fields import FORBIDDEN

# Parameter → reason why a policy cannot set it.
RESERVED: Mapping[str, str] = {
    "model": "set it at the target in gateway.yaml",
    **dict.fromkeys(("messages", "prompt", "input"), "it comes from the client's request"),
    **dict.fromkeys(("stream", "stream_options", "n"), "only the client can set it"),
    "stop": "it belongs to the template; list stops there under stop",
    **dict.fromkeys(("url", "base_url", "api_base"), "set it at the target in gateway.yaml, as url"),
    **dict.fromkeys(("key", "api_key", "headers", "extra_headers"), "secrets are set at the target, as key"),
    **dict.fromkeys(("timeout", "max_retries", "num_retries"), "timeouts and attempts are set under delivery"),
    **dict.fromkeys(("extra_body", "gateway"), "name the parameters themselves"),
}
ESSENTIAL = ("model", "messages", "prompt", "input")
"""Every call needs these parameters, so a policy cannot forbid them."""

NEVER_ALLOWED: Mapping[str, str] = dict.fromkeys(FORBIDDEN, "no policy can allow it")


def read_policy(files: Files, path: Path, name: str, blame: ProblemMaker) -> PolicySpec | None:
    """Return the policy of a file; None if it has problems."""
    before = len(files.problems)
    document = files.document(path, blame)
    if document is None:
        return None
    checked = check(document, POLICY)
    files.problems.extend(checked.problems)
    values = checked.values
    _params(files, document, values["params"])
    _check_timeouts(files, document, values["delivery"]["timeout"])
    return _spec(name, values) if len(files.problems) == before else None


def _params(files: Files, document: YamlDocument, params: Mapping[str, Any]) -> None:
    def refuse(section: str, names: Iterable[str], why: Mapping[str, str]) -> None:
        for name in names:
            if name in why:
                message = f"{quote(name)} is not allowed here: {why[name]}"
                path = ("params", section) if section in ("allow", "forbid") else ("params", section, name)
                files.problems.append(document.problem(path, message))

    refuse("force", params["force"] or (), RESERVED)
    refuse("default", params["default"] or (), RESERVED)
    refuse("clamp", params["clamp"] or (), RESERVED)
    refuse("forbid", params["forbid"] or (), dict.fromkeys(ESSENTIAL, "every call needs it"))
    refuse("allow", params["allow"] or (), NEVER_ALLOWED)
    refuse("allow", params["allow"] or (), dict.fromkeys(params["forbid"] or (), "params.forbid refuses it; keep one"))
    for name in params["default"] or ():
        if params["force"] is not INVALID and name in params["force"]:
            message = "is never used: params.force gives the same parameter; keep one"
            files.problems.append(document.problem(("params", "default", name), message))


def _check_timeouts(files: Files, document: YamlDocument, timeout: Mapping[str, Any]) -> None:
    """Refuse a timeout that is longer than the total."""
    total = timeout["total"]
    for name in ("connect", "first_token", "idle"):
        path = ("delivery", "timeout", name)
        given = timeout[name] if document.at(path) is not None else INVALID
        if given and total and given > total:
            files.problems.append(document.problem(path, f"is longer than total ({total:g}s): it has no effect"))


def _spec(name: str, values: Mapping[str, Any]) -> PolicySpec:
    params, delivery = dict(values["params"]), values["delivery"]
    for section in ("force", "default", "clamp"):
        params[section] = MappingProxyType(params[section])
    return PolicySpec(
        name=name,
        description=values["description"],
        params=ParamsPolicy(**params),
        media=MediaPolicy(**values["media"]),
        delivery=DeliveryPolicy(
            **delivery["timeout"],
            attempts=delivery["retry"]["attempts"],
            stream_upstream=delivery["stream_upstream"],
        ),
    )
