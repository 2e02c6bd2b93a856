"""The run of ``gateway check --live --deep``: finds the engine, runs all probes, prints and saves the report."""

from __future__ import annotations

import asyncio
import json
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


def run(deep: str, config: Path, key: str | None, timeout: float, as_json: bool, save: File, against: File) -> int:
    """Check an engine, print the report, and return the exit code. Raises ``CommandError`` and ``ConfigError``.

    ``deep``: a configured model, or an address. ``timeout``: the seconds of one request.
    """
    if is_address(deep):
        target, route = target_at(base_url(http_url(deep)), read_key(key)), None
    else:
        model = with_clock(find_model(deep, None, load_snapshot(config)), "")
        servers = [one for one in model.targets if BACKEND_KINDS[one.speaks].openai_server]
        if not servers:
            raise CommandError(f"{deep} has no target with speaks: completions or chat; there is no engine to ask")
        target = min(servers, key=lambda one: one.speaks == "chat")
        route = route_of(replace(model, targets=(target,)))
    subject = Subject(EngineClient(target, timeout, REQUESTS), route, None if route is None else route.tokens)
    click.echo(f"at most {REQUESTS} requests, {REQUESTS * ANSWER_TOKENS} generated tokens", err=True)
    report = asyncio.run(_report(subject, save, against))
    written = json.dumps(report, ensure_ascii=False, indent=2)
    if save is not None:
        save.write_text(f"{written}\n", encoding="utf-8")
    click.echo(written if as_json else _as_text(report))
    return 1 if any(probe["verdict"] == "differs" for probe in report["probes"]) else 0


async def _report(subject: Subject, save: File, against: File) -> dict[str, Any]:
    try:
        await subject.open()
    except GatewayError as error:
        url = urlsplit(subject.client.target.url)
        way = "; give its key with --key env:NAME" if error.upstream_status in (401, 403) else ""
        address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"  # without a user and a password
        raise CommandError(f"{address} cannot be checked: {error}{way}") from None
    model, version = subject.client.target.model, await _version(subject)
    subject.saved = None if against is None else read_report(against, model)
    probes = [probe for probe in PROBES if probe.name not in OPTIONAL - subject.known]
    probes += [SAME_MODEL] if save or against else []
    with progress("checking", probes) as bar:
        results = [asdict(await run_probe(probe, subject)) for probe in bar]
    facts = {"format": FORMAT, "model": model, "engine": version, "date": utc(time.time())}
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
    lines = [f"model   {report['model']}", f"engine  {report['engine']}", ""]
    lines += [click.style(row, fg=COLORS[one["verdict"]]) for row, one in zip(rows, found, strict=True)]
    if wrong := [f"  {one['probe']}: {one['advice']}" for one in found if one["advice"]]:
        lines += ["", "what to do:", *wrong]
    counts = Counter([one["verdict"] for one in found])
    summary = ", ".join([f"{counts[verdict]} {verdict}" for verdict in COLORS if counts[verdict]])
    return "\n".join([*lines, "", f"{len(found)} probes: {summary}; {report['requests']} requests"])
