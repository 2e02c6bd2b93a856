"""What ``gateway check --live`` asks: the targets and the store.

Each configured target must be reachable, accept its key, have its model and add a BOS as configured. No text is
generated. Targets in this process are not asked, because they are loaded already. Providers behind LiteLLM are not
asked, because each request would cost money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.backend.engines import declared_capabilities
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.base import open_endpoint
from gateway.backend.openai.tokenizer_client import TokenizerClient
from gateway.cli.connecting.engine import CONNECT_SECONDS, REQUEST_SECONDS, served_models
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.sections.targets import locate
from gateway.config.snapshot import Engine, ModelSpec, Snapshot, StoreSpec, TargetSpec
from gateway.core.errors import GatewayError, Problem, UpstreamAuthFailed, UpstreamModelMissing
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.words import quoted, suggest

LLAMACPP_OWNERS: Mapping[str, Engine] = {"llamacpp": "llamacpp", "me": "llamacpp-python"}
"""The field ``owned_by`` of the two servers of llama.cpp → the setting ``engine``. Other servers write ``me`` too."""
TEXT = "a"
"""The text that engines are asked to tokenize."""


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The result of one check."""

    label: str
    """The name of the target; of the store, ``store``."""
    found: str
    """A phrase for the table of results."""
    problem: Problem | None = None


class LiveProblem(Exception):
    """A problem with one setting of a target."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


async def check_live(snapshot: Snapshot, document: YamlDocument) -> list[LiveResult]:
    """Return one result for each target, and one for the store. ``document``: ``gateway.yaml``."""
    client, models = HttpClient(), snapshot.models.values()
    checks = [_check(model, position, client) for model in models for position in range(len(model.targets))]
    try:
        found = await asyncio.gather(*checks)
    finally:
        await client.aclose()
    return [*found, await _store(snapshot.store, document)] if snapshot.store.url else found


async def _check(model: ModelSpec, position: int, client: HttpClient) -> LiveResult:
    target = model.targets[position]
    try:
        return LiveResult(target.label, await _ask(model, target, client))
    except LiveProblem as error:
        problem = locate(Problem(target.label, 0, error.setting, str(error)), model, position)
        return LiveResult(target.label, "problem", problem)


async def _ask(model: ModelSpec, target: TargetSpec, client: HttpClient) -> str:
    """Ask one target, and return a phrase about its answer. Raises ``LiveProblem`` if the target cannot be used."""
    if not BACKEND_KINDS[target.speaks].openai_server:
        return "not asked, because it is a provider" if target.speaks == "litellm" else "runs in this process"
    try:
        endpoint = open_endpoint(client, target, f"{target.url}/models", CONNECT_SECONDS, method="GET")
        owners = {served.name: served.owner for served in await served_models(endpoint, target.url)}
    except UpstreamAuthFailed:
        advice = "check its value" if target.key is not None else 'set key: "env:NAME"'
        raise LiveProblem("key", f"{target.url} refuses the key; {advice}") from None
    except UpstreamModelMissing:
        raise LiveProblem("url", f"{target.url} has no /models; the url usually ends in /v1") from None
    except GatewayError as error:
        raise LiveProblem("url", f"{target.url}: {error.message}") from None
    if target.model not in owners:
        message = f"{target.url} does not serve {quoted(target.model)}{suggest(target.model, owners)}"
        raise LiveProblem("model", f"{message}; set model to a name that this server lists")
    looks = other_llamacpp(target.engine, owners[target.model])
    return f"serves {target.model}{looks}" + await _bos(model, target, client)


def other_llamacpp(engine: Engine, owner: str) -> str:
    """Return a phrase if one of llama.cpp's two servers is declared, and the served model's owner is of the other one.

    ``owner``: the field ``owned_by`` of the server's list of models.
    """
    likely = LLAMACPP_OWNERS.get(owner, engine)
    if engine == likely or engine not in LLAMACPP_OWNERS.values():
        return ""
    return f"; it looks like engine: {likely}, not {engine}"


async def _bos(model: ModelSpec, target: TargetSpec, client: HttpClient) -> str:
    """Return a phrase about the BOS that an engine adds; empty if the engine has no ``/tokenize``.

    Raises ``LiveProblem`` if the BOS contradicts the settings of the target or the template.
    """
    if BACKEND_KINDS[target.speaks].form != "text" or not declared_capabilities(target).renders:
        return ""
    tokenizer = TokenizerClient(target, client, CONNECT_SECONDS, REQUEST_SECONDS)
    try:
        plain, full = [
            (await tokenizer.tokenize({"prompt": TEXT, "add_special_tokens": special}))["tokens"]
            for special in (False, True)
        ]
        bos = full[0] if full[1 : 1 + len(plain)] == plain else None
        text = "" if bos is None else await tokenizer.detokenize([bos])
    except GatewayError as error:
        return f"; BOS not checked: {error.message}"
    adds = f"puts the BOS {text} before a prompt" if bos is not None else "puts no BOS before a prompt"
    if target.adds_bos is not None and target.adds_bos != (bos is not None):
        value = "true" if target.adds_bos else "false"
        raise LiveProblem("adds_bos", f"is {value}, but the engine {adds}; correct or remove this setting")
    if model.template.bos == "engine" and bos is None:
        name = quoted(model.template.name)
        raise LiveProblem("engine", f"the engine {adds}, but the template {name} expects a BOS (bos: engine)")
    return f"; {adds}"


async def _store(spec: StoreSpec, document: YamlDocument) -> LiveResult:
    from gateway.storage.redis_server import probe

    if fault := await probe(spec, REQUEST_SECONDS):
        return LiveResult("store", "problem", document.problem(("store", "url"), f"{spec.url} {fault}"))
    return LiveResult("store", f"{spec.url} answers, and can be written")
