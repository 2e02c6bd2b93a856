"""Send every row of a file to a model, and write one output line for each row, as in OpenAI's batch files.

The gateway runs in this process, from the configuration; with --base-url, a running gateway is used. A run that was
interrupted or killed goes on where it ended when the same command is given again: each row is in the output once.
OUT.manifest.json has the run's settings, template hashes, effective parameters, token totals and latencies.

Exit code 0: every row has an answer. 1: rows failed, or the run ended early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.options import CommandError, add_config, load_snapshot

if TYPE_CHECKING:
    from gateway.cli.running.gateways import GatewaySource
    from gateway.cli.running.output import OutputFile
    from gateway.cli.running.rows import DataSurvey, RowForm

EXAMPLES = """examples:
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway run batch.jsonl --out answers.jsonl --base-url http://127.0.0.1:8000/v1
  gateway run questions.jsonl --model demo --keep answer --param max_tokens=8 --out answers.jsonl
  gateway run questions.jsonl --model demo --out answers.jsonl --retry-failed

rows, one JSON object on each line:
  {"messages": [{"role": "user", "content": "1+1=?"}]}
  {"custom_id": "sum-1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}
  {"question": "1+1=?"}                            the variables of a dataset prompt (--prompt)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway run``."""
    parser.add_argument("data", type=Path, metavar="DATA", help="the rows, a file with one JSON object on each line")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the output; an earlier run goes on")
    parser.add_argument("--model", metavar="MODEL", help="the model, for rows that name none")
    parser.add_argument("--prompt", metavar="ID", help="a dataset prompt; each row has its variables")
    parser.add_argument("--infer", default="gen", choices=["gen", "ppl", "multiturn"],
                        help="gen: an answer (default); ppl: the likelihood of each candidate; "
                        "multiturn: the answers of a whole dialogue")  # fmt: skip
    parser.add_argument("--turns", default="every", choices=["every", "every_with_gt", "last"],
                        help="for multiturn: the history of a turn (default: every)")  # fmt: skip
    parser.add_argument(
        "--examples",
        type=Path,
        metavar="FILE",
        help="examples before each question, one JSON object on each line, instead of the prompt's own",
    )
    parser.add_argument("--param", action="append", default=[], type=_param, metavar="NAME=VALUE",
                        help="a field of the requests, such as max_tokens=64, for rows that do not set it; "
                        "VALUE is JSON or a text; may be repeated")  # fmt: skip
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="copy a column to the output, and do not send it as a field; may be repeated",
    )
    where = parser.add_mutually_exclusive_group()
    add_config(where)
    where.add_argument("--base-url", metavar="URL", help="a running gateway, such as http://127.0.0.1:8000/v1")
    parser.add_argument(
        "--key", metavar="env:NAME", help="the environment variable with the client key, for --base-url"
    )
    parser.add_argument("--concurrency", type=_positive, default=32, metavar="N",
                        help="requests under way at once (default: 32)")  # fmt: skip
    parser.add_argument("--engine", default="local", choices=["local", "ray"],
                        help="local: this process asks (default); ray: the machines of a Ray cluster ask")  # fmt: skip
    parser.add_argument("--retries", type=int, default=5, metavar="N",
                        help="repetitions of a row while the gateway is busy or restarted (default: 5)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS",
                        help="the longest time of one request to --base-url (default: 3600)")  # fmt: skip
    parser.add_argument(
        "--retry-failed", action="store_true", help="ask again for the rows that failed in earlier runs"
    )
    parser.add_argument("--allow-changes", action="store_true",
                        help="keep the earlier rows although data, prompt, model or fields have changed")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Ask for all rows that are not in the output yet, and print a summary on standard error."""
    import uvloop

    from gateway.cli.running.output import OutputFile
    from gateway.cli.running.rows import RowForm, read_examples, survey

    if args.examples is not None and args.prompt is None:
        raise CommandError("--examples are for a dataset prompt; give --prompt, or leave them out")
    form = RowForm(
        model=args.model,
        prompt=args.prompt,
        infer=args.infer,
        turns=args.turns,
        examples=() if args.examples is None else read_examples(args.examples),
        params=dict(args.param),
        keep=tuple(args.keep),
    )
    found = survey(args.data, form)
    with OutputFile(args.out) as output, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(args, form, found, output))


async def _run(args: argparse.Namespace, form: RowForm, found: DataSurvey, output: OutputFile) -> int:
    from gateway.cli.running.ask import RetryLimits, ask_all
    from gateway.cli.running.gateways import GatewayUnreachable
    from gateway.cli.running.identity import identity
    from gateway.cli.running.manifest import Manifest
    from gateway.cli.running.progress import ProgressBar
    from gateway.cli.running.ray_data import ask_with_ray
    from gateway.cli.running.rows import read_rows

    limits = RetryLimits(retries=args.retries)
    source = _source(args)
    try:
        async with source.open(args.concurrency) as gateway:
            described = await identity(gateway, found, form, limits)
            manifest = Manifest(args.out, described, {"gateway": args.base_url or str(args.config)})
            manifest.begin(len(output.done), allow_changes=args.allow_changes)
            if args.retry_failed:
                output.drop_failed()
            bar = ProgressBar(found.rows, len(output.done))

            def write(line: bytes, answered: bool) -> None:
                output.append(line)
                bar.row(answered)

            rows = (row for row in read_rows(args.data, form) if row.custom_id not in output.done)
            started, complete = time.monotonic(), False
            try:
                if args.engine == "ray":
                    ask_with_ray(source, rows, limits, args.concurrency, write)
                else:
                    await ask_all(gateway, rows, limits, args.concurrency, write)
                complete = True
            finally:
                seconds = time.monotonic() - started
                bar.end()
                output.sync()
                results = manifest.end(seconds, complete=complete)
                _report(args.out, results, 0 if complete else found.rows - results["rows"])
    except GatewayUnreachable as error:
        raise CommandError(str(error), 1) from None
    except OSError as error:
        raise CommandError(f"{args.out}: {error.strerror}; the same command goes on from here", 1) from None
    return 1 if results["failed"] else 0


def _source(args: argparse.Namespace) -> GatewaySource:
    from gateway.cli.running.gateways import LocalSource, RemoteSource

    if args.base_url is None:
        if args.key is not None:
            raise CommandError("--key is for --base-url; a gateway in this process needs no key")
        return LocalSource(args.config, load_snapshot(args.config))
    if not args.base_url.startswith(("http://", "https://")):
        raise CommandError(f"--base-url {args.base_url}: give an address such as http://127.0.0.1:8000/v1")
    return RemoteSource(args.base_url, _key(args.key), args.timeout)


def _key(source: str | None) -> str | None:
    if source is None:
        return None
    kind, _, name = source.partition(":")
    if kind != "env" or name not in os.environ:
        raise CommandError(f"--key {source}: give env:NAME, where NAME is an environment variable that is set")
    return os.environ[name]


def _report(out: Path, results: dict[str, Any], missing: int) -> None:
    """Print the result of the run on standard error. ``missing``: the number of rows that were not asked for."""
    from gateway.cli.running.output import manifest_path

    left = f", {missing} not asked yet" if missing else ""
    print(f"{results['answered']} of {results['rows'] + missing} rows answered, {results['failed']} failed{left}: "
          f"{out}, {manifest_path(out)}", file=sys.stderr)  # fmt: skip
    if results["errors"]:
        codes = ", ".join([f"{code} ({count})" for code, count in results["errors"].items()])
        print(f"errors: {codes}; each failed row has its error in {out}", file=sys.stderr)
    for name, model in results["models"].items():
        for kind in ("templates", "dataset_prompts"):
            if len(model[kind].keys() - {"none"}) > 1:
                print(f"note: the {kind} of {name} differ between rows: {', '.join(model[kind])}", file=sys.stderr)


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, such as max_tokens=64, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1, not {text!r}")
    return int(text)
