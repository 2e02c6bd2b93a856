"""The run of ``gateway check --live --deep``: finds the engine, runs all probes, prints and saves the report."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gateway.cli.call_options import http_url, read_key
from gateway.cli.connecting.first_config import base_url
from gateway.cli.options import CommandError, load_snapshot
from gateway.cli.rendering import find_model, route_of
from gateway.cli.terminal import format_table, progress
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import target_at
from gateway.core.errors import GatewayError
from gateway.workshop.comparing.comparison import is_address, with_clock
from gateway.workshop.engine import prompts, sampling
from gateway.workshop.engine.client import EngineClient
from gateway.workshop.engine.fingerprint import FORMAT, SAME_MODEL, read_report
from gateway.workshop.engine.subject import ANSWER_TOKENS, Subject, run_probe
from metatemplate.values.words import printable, utc

PROBES = (*prompts.PROBES, *sampling.PROBES)
VERSIONS = {"/version": "version", "/props": "build_info", "/get_server_info": "version"}
"""The paths at which vLLM, llama.cpp and SGLang tell a version, each with the field."""
REQUESTS = 3 + len(VERSIONS) + sum([probe.requests for probe in (*PROBES, SAME_MODEL)])
"""The maximum number of requests. Three are for the list of models, and for the first answer, perhaps also by chat."""
OPTIONAL = {*sampling.GREEDY, *sampling.PENALTIES, "logit_bias"}
"""The probes that are left out for an engine without the field of the same name."""
File = Path | None
COLORS = {"ok": "green", "differs": "red", "could not check": "yellow"}


def run(deep: str, config: Path, key: str | None, timeout: float, save: File, against: File, **shown: bool) -> int:
    """Check an engine, print the report, and return the exit code. Raises ``CommandError`` and ``ConfigError``.

    ``deep``: a configured model, or an address. ``timeout``: the seconds of one request. ``shown``: ``as_json``, and
    ``quiet``, which prints nothing if nothing differs. The options are checked before the first request.
    """
    if save and (os.path.isdir(save) or not os.access(save if os.path.exists(save) else f"{save.parent}/.", os.W_OK)):
        raise CommandError(f"--save {save} cannot be written; give a file in a folder that exists and can be written")
    if is_address(deep):
        target, route, targets = target_at(base_url(http_url(deep)), read_key(key)), None, dict[str, Any]()
    else:
        if key is not None:
            raise click.UsageError(f"--key is for an address; the key of the model {deep} is set in {config}")
        model = with_clock(find_model(deep, None, load_snapshot(config)), "")
        servers = [one for one in model.targets if BACKEND_KINDS[one.speaks].openai_server]
        if not servers:
            raise CommandError(f"{deep} has no target with speaks: completions or chat; there is no engine to ask")
        target = min(servers, key=lambda one: one.speaks == "chat")
        route = route_of(replace(model, targets=(target,)))
        targets = {"target": target.label, "unchecked": [one.label for one in model.targets if one is not target]}
    subject = Subject(EngineClient(target, timeout, REQUESTS), route, None if route is None else route.tokens)
    subject.saved = None if against is None else read_report(against)
    if not shown["quiet"]:
        click.echo(f"at most {REQUESTS} requests, {REQUESTS * ANSWER_TOKENS} generated tokens", err=True)
    report = asyncio.run(_report(subject, targets, keep=save is not None))
    written = json.dumps(report, ensure_ascii=False, indent=2)
    if save is not None:
        save.write_text(f"{written}\n", encoding="utf-8")
    code = int(any(probe["verdict"] == "differs" for probe in report["probes"]))
    if shown["as_json"] or code or not shown["quiet"]:
        click.echo(written if shown["as_json"] else _as_text(report))
    return code


async def _report(subject: Subject, targets: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    try:
        await subject.open()
    except GatewayError as error:
        url = urlsplit(subject.client.target.url)
        way = "; give its key with --key env:NAME" if error.upstream_status in (401, 403) and not targets else ""
        address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"  # without a user and a password
        raise CommandError(f"{address} cannot be checked: {error}{way}") from None
    model, version = subject.client.target.model, await _version(subject)
    if subject.saved is not None and subject.saved["model"] != model:
        raise CommandError(f"--against: the report is about {subject.saved['model']}, not about {model}")
    probes = [probe for probe in PROBES if probe.name not in OPTIONAL - subject.known]
    probes += [SAME_MODEL] if keep or subject.saved is not None else []
    with progress("checking", probes) as bar:
        results = [asdict(await run_probe(probe, subject)) for probe in bar]
    facts = {"format": FORMAT, "model": model, **targets, "engine": version, "date": utc(time.time())}
    return {**facts, "requests": subject.client.sent, "probes": results, "fingerprint": subject.fingerprint}


async def _version(subject: Subject) -> str:
    """Return the kind of engine and its version, as far as the engine tells it."""
    engine = subject.client.target.engine
    for path, name in VERSIONS.items():
        with suppress(GatewayError):
            if version := (await subject.client.ask(path)).get(name):
                return f"{engine} {version}"
    return f"{engine}, version not known"


def _as_text(report: dict[str, Any]) -> str:
    found = report["probes"]
    rows = format_table([[one["probe"], one["verdict"], printable(one["evidence"])] for one in found])
    facts = {**report, "unchecked": ", ".join(report.get("unchecked", ()))}
    lines = [f"{name:7} {facts[name]}" for name in ("model", "engine", "target", "unchecked") if facts.get(name)]
    lines += ["", *[click.style(row, fg=COLORS[one["verdict"]]) for row, one in zip(rows, found, strict=True)]]
    if wrong := [f"  {one['probe']}: {one['advice']}" for one in found if one["advice"]]:
        lines += ["", "what to do:", *wrong]
    counts = Counter([one["verdict"] for one in found])
    summary = ", ".join([f"{counts[verdict]} {verdict}" for verdict in COLORS if counts[verdict]])
    return "\n".join([*lines, "", f"{len(found)} probes: {summary}; {report['requests']} requests"])
