"""Read the configuration and all templates and policies next to it, and run the examples in the templates.

Then load embedded models, scripts and tokenizers, as gateway serve does: if check succeeds, serve can start, provided
that the port is free. Each problem is one line with its file, its line, the key, and what to do.

With --live, every target with speaks: completions or chat is asked for its list of models: the address must answer,
accept the key and know the model. If the engine has /tokenize (vLLM, SGLang), it is also asked whether it puts a BOS
before a prompt, which is compared with adds_bos and with bos: engine of the template. No text is generated, and targets
with speaks: litellm are not asked. A test value is written to the store (store.url); it expires after one second.

With --live --deep, the engine behind one configured model, or behind an address, is asked whether it reads the prompt
that the gateway sends, token for token, and whether it does what requests tell it: max_tokens, stops, seed, sampling
parameters, a schema, a stream. The number of requests is printed before the first one. Only this engine is checked.
Exit code 0: nothing differs. 1: something differs. 2: the engine does not answer, the file of --against is no report on
the same model, or the file of --save cannot be written.

--json has "problems" and "notes", each with "file", "line", "key" and "message", and null where there is no place; with
--live also "live", the "label" of each target and what was "found".

Exit code 0: there are no problems. 1: there are problems, and standard error lists them, one on each line.
3: the configuration file does not exist.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.options import (
    FILE_PATH,
    all_notes,
    check_config_exists,
    config_option,
    is_given,
    print_notes,
    print_problems,
    verb,
)
from gateway.cli.terminal import format_table, progress
from metatemplate.values.words import counted

if TYPE_CHECKING:
    from gateway.cli.connecting.live_check import LiveResult
    from gateway.config.snapshot import Snapshot
    from gateway.core.errors import Problem

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
EXAMPLES = """Examples:
  gateway check
  gateway check --config conf/gateway.yaml || exit 1     in a CI job
  gateway check --live                                   is every target reachable?
  gateway check --live --deep my-sft-7b --save monday.json       does its engine do what it is told?
  gateway check --live --deep my-sft-7b --against monday.json    the same model as on Monday?
  gateway check --live --deep http://127.0.0.1:8101/v1           an engine that is not configured
  gateway check --json | jq -r '.problems[] | "\\(.file):\\(.line)"'
"""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("-q", "--quiet", is_flag=True, help="print nothing if there are no problems, or if nothing differs")
@click.option(
    "--live",
    is_flag=True,
    help="ask every target whether it accepts its key and serves its model, and ask the store",
)
@click.option("--deep", metavar="MODEL|URL", help="check what the engine of a model, or at an address, does")
@click.option("--save", type=FILE_PATH, metavar="FILE", help="with --deep, also write the report to a file")
@click.option("--against", type=FILE_PATH, metavar="FILE", help="with --deep, compare with a saved report")
@click.option("--key", metavar="env:NAME", help="with --deep URL, the environment variable that contains the key")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, help="with --deep, the seconds of one request")
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of text, also without any problem")
def command(config: Path, quiet: bool, live: bool, as_json: bool, **deep: Any) -> int:
    """Check the configuration, and print problems or a summary."""
    if any(map(is_given, deep)):
        if not live or not deep["deep"]:
            raise click.UsageError("--deep needs --live; --save, --against, --key and --timeout need --deep")
        module = import_module("gateway.workshop.engine.deep_check")  # a tool above the command line
        return int(module.run(config=config, as_json=as_json, quiet=quiet, **deep))
    from gateway.config.load import read_configuration
    from gateway.config.sections.keys import expiry_notes
    from metatemplate.files.reader import POLICIES, TEMPLATES

    check_config_exists(config)
    files = [path for folder in (TEMPLATES, POLICIES) for path in (config.parent / folder).glob("*.yaml")]
    with progress("checking", range(len(files) + 1)) as bar:  # the last step: models are loaded
        outcome = read_configuration(config, os.environ, everything=True, checked=bar.update)
        # A problem in an unused template prevents the first snapshot; the files in use are then read alone.
        snapshot = outcome.snapshot or read_configuration(config, os.environ).snapshot
        problems = outcome.problems + (dry_run(snapshot) if snapshot is not None else ())
        bar.update(1)
    usable = None if problems else snapshot
    notes: list[Problem | str] = [*outcome.notes]
    proxies = [one for one in sorted(os.environ) if one.upper() in PROXY_VARIABLES and os.environ[one]]
    if proxies:
        notes.append(f"only litellm targets and spans use {', '.join(proxies)}; for others set proxy, or network.proxy")
    if snapshot is not None:
        notes += expiry_notes(snapshot.keys, time.time())
    if usable is not None and not (quiet or as_json):
        print_notes(usable, notes)
        read = f"{counted(len(usable.models), 'model')}, {counted(len(outcome.files), 'file')} read"
        print(f"{config}: no problems ({read}, all examples correct)")
    results = _ask_live(usable, config) if live and usable is not None else []
    if results and not (quiet or as_json):
        print(*format_table([[result.label, result.found] for result in results]), sep="\n")
    problems += tuple([result.problem for result in results if result.problem is not None])
    if as_json:
        all_found = notes if snapshot is None else all_notes(snapshot, notes)
        facts = {"problems": [*map(_as_json, problems)], "notes": [*map(_as_json, all_found)]}
        live_facts = [{"label": result.label, "found": result.found} for result in results]
        print(json.dumps({**facts, **({"live": live_facts} if live else {})}, ensure_ascii=False, indent=2))
    elif problems:
        print_problems(problems)
    return 1 if problems or snapshot is None else 0


def dry_run(snapshot: Snapshot) -> tuple[Problem, ...]:
    """Return the problems that would stop the gateway from serving with a snapshot.

    To find the problems, the function builds the whole stack, loads its engines, and then frees them.
    """
    from gateway.assembly import assemble, open_shared_resources
    from gateway.core.errors import ConfigError
    from gateway.telemetry.metrics import Metrics

    try:
        assemble(snapshot, open_shared_resources(Metrics()))
    except ConfigError as error:
        return error.problems
    return ()


def _ask_live(snapshot: Snapshot, config: Path) -> Sequence[LiveResult]:
    """Ask every target and the store."""
    from gateway.cli.connecting.live_check import check_live
    from metatemplate.files.yaml import parse

    return asyncio.run(check_live(snapshot, parse(config.read_bytes(), config.name, [])))


def _as_json(one: Problem | str) -> dict[str, Any]:
    """Return a problem or a note as a JSON object. A note on the whole configuration has only a message."""
    if isinstance(one, str):
        return {"file": None, "line": None, "key": None, "message": one}
    return {"file": one.file, "line": one.line or None, "key": one.key or None, "message": one.message}
