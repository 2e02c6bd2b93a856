"""Send every row of a file to a model, and write one output line for each row, as in OpenAI's batch files.

The gateway runs in this process, from the configuration file. With --base-url, a running gateway is used instead. To
continue a run that was interrupted or killed, give the same command again: each row is in the output once.
OUT.manifest.json contains the run's settings, template hashes, effective parameters, token totals and latencies.

Exit code 0: every row has an answer. 1: some rows failed, or the run ended early.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gateway.cli.completion import complete_model, complete_prompt
from gateway.cli.options import (
    FILE_PATH,
    CommandError,
    config_option,
    load_snapshot,
    param_option,
    print_note,
    read_key,
    url_option,
    verb,
)
from gateway.cli.terminal import progress
from metatemplate.values.words import counted, printable, quoted, suggest

if TYPE_CHECKING:
    from gateway.evaluate.running.gateways import GatewaySource
    from gateway.evaluate.running.output import OutputFile
    from gateway.evaluate.running.rows import DataSurvey, RowForm

EXAMPLES = """Examples:
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway run batch.jsonl --out answers.jsonl --base-url http://127.0.0.1:8000/v1
  gateway run questions.jsonl --model demo --keep answer --param max_tokens=8 --out answers.jsonl
  gateway run questions.jsonl --model demo --out answers.jsonl --retry-failed
  gateway run questions.jsonl --model demo --out again.jsonl --replay answers.recording.sqlite
  gateway run questions.jsonl --model demo --keep answer --score exact --out answers.jsonl

Rows, one JSON object on each line:
  {"messages": [{"role": "user", "content": "1+1=?"}]}
  {"custom_id": "sum-1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}
  {"question": "1+1=?"}                            the variables of a dataset prompt (--prompt)
"""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``gateway run``."""

    data: Path
    out: Path
    model: str | None
    prompt: str | None
    infer: str
    turns: str
    examples: Path | None
    param: tuple[tuple[str, Any], ...]
    """Fields of the requests with their values."""
    keep: tuple[str, ...]
    send: tuple[str, ...]
    config: Path
    base_url: str | None
    key: str | None
    concurrency: int
    engine: str
    retries: int
    timeout: float
    """Seconds for one request to ``base_url``."""
    retry_failed: bool
    allow_changes: bool
    recording: bool
    replay: Path | None
    """The recording that answers in place of the models' targets."""
    pace: Literal["none", "recorded"] | None
    score: str | None
    answer: str
    evidence: bool


@verb(__doc__, EXAMPLES)
@click.argument("data", type=FILE_PATH, help="the rows, a file with one JSON object on each line")
@click.option(
    "--out", type=FILE_PATH, required=True, metavar="FILE", help="the output file; an earlier run is continued"
)
@click.option("--model", metavar="MODEL", shell_complete=complete_model,
              help="the model for rows that do not name a model")  # fmt: skip
@click.option("--prompt", metavar="ID", shell_complete=complete_prompt,
              help="a dataset prompt; each row contains the prompt's variables")  # fmt: skip
@click.option("--infer", default="gen", type=click.Choice(["gen", "ppl", "multiturn"]),
              help="gen: an answer; ppl: the likelihood of each candidate; "
              "multiturn: the answers of a whole dialogue")  # fmt: skip
@click.option("--turns", default="every", type=click.Choice(["every", "every_with_gt", "last"]),
              help="for --infer multiturn: which turns are asked, and with which history")  # fmt: skip
@click.option("--examples", type=FILE_PATH, metavar="FILE",
              help="examples before each question, one JSON object on each line, "
              "instead of the examples of the dataset prompt")  # fmt: skip
@param_option("a field of the requests, such as max_tokens=64, for rows that do not set it; "
              "VALUE is JSON or a text; may be repeated")  # fmt: skip
@click.option("--keep", multiple=True, metavar="COLUMN",
              help="copy a column to the output, and do not send it as a field; may be repeated")  # fmt: skip
@click.option("--send", multiple=True, metavar="COLUMN",
              help="send a column, or a key of messages, that is not a known field; may be repeated")  # fmt: skip
@config_option()
@url_option("a running gateway, such as http://127.0.0.1:8000/v1", name="base_url")
@click.option("--key", metavar="env:NAME", help="the environment variable with the client key for --base-url")
@click.option("--concurrency", type=click.IntRange(min=1), default=32, metavar="N", help="concurrent requests, at most")
@click.option("--engine", default="local", type=click.Choice(["local", "ray"]),
              help="local: this process sends the requests; ray: the machines of a Ray cluster send them")  # fmt: skip
@click.option("--retries", type=click.IntRange(min=0), default=5, metavar="N",
              help="the maximum number of retries of a row, while the gateway is busy or restarts")  # fmt: skip
@click.option("--timeout", type=float, default=3600, metavar="SECONDS",
              help="the timeout of one request to --base-url")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="send again the rows that failed in earlier runs")
@click.option("--allow-changes", is_flag=True,
              help="keep the rows of an earlier run, even if data, prompt, model or fields have changed")  # fmt: skip
@click.option("--recording/--no-recording", default=True,
              help="record the calls of a gateway in this process, in a file beside the output; "
              "name the run to another gateway, which records it if its policies say so")  # fmt: skip
@click.option("--replay", type=FILE_PATH, metavar="FILE",
              help="answer from a recording of an earlier run, in place of the models' targets")  # fmt: skip
@click.option("--pace", type=click.Choice(["none", "recorded"]), show_default="none",
              help="how fast --replay answers: at once, or after the recorded times")  # fmt: skip
@click.option("--score", metavar="exact|contains|choice|regex:PATTERN",
              help="print the report of the run at its end, with this score: see gateway report")  # fmt: skip
@click.option("--answer", metavar="COLUMN", default="answer",
              help="the kept column with the expected text, for --score")  # fmt: skip
@click.option("--evidence", is_flag=True,
              help="ask for the two likeliest tokens at each place, and for token ids, for gateway why")  # fmt: skip
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """Send all rows that are not in the output yet, and print a summary on standard error."""
    import uvloop

    from gateway.evaluate.reporting.report import print_report, row_score
    from gateway.evaluate.running.output import OutputFile
    from gateway.evaluate.running.rows import RowForm, read_examples, survey

    chosen = RunOptions(**options)
    if chosen.base_url is not None and _is_given(context, "config"):
        raise CommandError("--config and --base-url cannot be used together; remove one of them")
    if chosen.infer != "multiturn" and _is_given(context, "turns"):
        raise CommandError("--turns applies only to --infer multiturn; add this option, or remove --turns")
    if chosen.examples is not None and chosen.prompt is None:
        raise CommandError("--examples applies only to a dataset prompt; add --prompt, or remove --examples")
    if chosen.send and chosen.prompt is not None:
        raise CommandError("--send does not apply to --prompt, which has all columns as variables; remove --send")
    if chosen.score is None and _is_given(context, "answer"):
        raise CommandError("--answer applies only to --score; add --score, or remove --answer")
    score = row_score(chosen.score, chosen.answer, None)
    if chosen.score is not None and chosen.answer not in chosen.keep:
        raise CommandError(
            f"--score compares with the column {chosen.answer}; add --keep {chosen.answer}, "
            "or name another kept column with --answer"
        )
    if chosen.evidence and chosen.infer != "gen":
        raise CommandError("--evidence applies only to --infer gen; remove one of them")
    form = RowForm(
        model=chosen.model,
        prompt=chosen.prompt,
        infer=chosen.infer,
        turns=chosen.turns,
        examples=() if chosen.examples is None else read_examples(chosen.examples),
        params=dict(chosen.param),
        keep=chosen.keep,
        send=chosen.send,
        evidence=chosen.evidence,
    )
    try:
        found = survey(chosen.data, form, score)
        with OutputFile(chosen.out) as output, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_run(chosen, form, found, output))
    except KeyboardInterrupt:
        print_note("interrupted; the same command continues the run")
        raise
    if chosen.score is not None:
        print_report(str(chosen.out), chosen.config, chosen.score, chosen.answer)
    return code


async def _run(options: RunOptions, form: RowForm, found: DataSurvey, output: OutputFile) -> int:
    from gateway.evaluate.running.ask import RetryLimits, ask_all
    from gateway.evaluate.running.gateways import GatewayUnreachable
    from gateway.evaluate.running.identity import identity
    from gateway.evaluate.running.manifest import Manifest
    from gateway.evaluate.running.output import recording_path
    from gateway.evaluate.running.ray_data import ask_with_ray
    from gateway.evaluate.running.rows import read_rows

    limits = RetryLimits(retries=options.retries)
    source = _source(options, {model: row.line for (_, model), row in found.first.items()})
    try:
        async with source.open(options.concurrency) as gateway:
            described = await identity(gateway, found, form, limits)
            if options.replay is not None:
                described["replay"] = await asyncio.to_thread(_name_and_hash, options.replay)
            manifest = Manifest(options.out, described, _facts(options, source))
            manifest.begin(len(output.done), allow_changes=options.allow_changes)
            if options.retry_failed:
                output.drop_failed()
            left, failed = found.rows - len(output.done), 0

            def write(line: bytes, answered: bool) -> None:
                nonlocal failed
                output.append(line)
                failed += not answered
                bar.update(1, failed)

            rows = (row for row in read_rows(options.data, form) if row.custom_id not in output.done)
            started, complete = time.monotonic(), False
            try:
                with progress("rows", range(left), _count_failed, steps=max(left // 1000, 1)) as bar:
                    if options.engine == "ray":
                        ask_with_ray(source, rows, limits, options.concurrency, write)
                    else:
                        await ask_all(gateway, rows, limits, options.concurrency, write)
                complete = True
            finally:
                seconds = time.monotonic() - started
                output.sync()
                results = manifest.end(seconds, complete=complete)
                _report(options.out, results, 0 if complete else found.rows - results["rows"], source)
                if lost := await gateway.not_written():
                    print_note(f"{recording_path(options.out)} lacks {counted(lost, 'call')} of this run, because "
                               "writing failed; the log has the cause")  # fmt: skip
    except GatewayUnreachable as error:
        raise CommandError(str(error), 1) from None
    except OSError as error:
        raise CommandError(f"{options.out}: {error.strerror}; the same command continues the run", 1) from None
    return 1 if results["failed"] else 0


def _count_failed(failed: int | None) -> str | None:
    return f"{failed} failed" if failed else None


def _source(options: RunOptions, models: Mapping[str, int]) -> GatewaySource:
    """Return the gateway of the run. ``models``: the models that the rows name, each with the line of a row."""
    from gateway.evaluate.running.gateways import LocalSource, RemoteSource, replayed
    from gateway.evaluate.running.output import recording_path, run_name
    from gateway.storage.recordings import is_recording

    if options.pace is not None and options.replay is None:
        raise CommandError("--pace applies only to --replay; add this option, or remove --pace")
    if options.replay is not None and not options.replay.exists():
        raise CommandError(f"{options.replay}: no such file; give the recording of an earlier run")
    if options.replay is not None and not is_recording(options.replay):
        beside = recording_path(options.replay)
        hint = f"its recording is {beside}" if beside.exists() else "give the recording of an earlier run"
        raise CommandError(f"--replay {options.replay} is not a recording; {hint}")
    name = run_name(options.out) if options.recording else ""
    if options.base_url is None:
        if options.key is not None:
            raise CommandError("--key applies only to --base-url; a gateway in this process needs no key")
        snapshot = load_snapshot(options.config)
        _check_models(options, models, snapshot.models)
        if options.replay is not None:
            snapshot = replayed(snapshot, models, options.replay, options.pace or "none")
        if snapshot.recordings.run == "off":
            name = ""
        path = recording_path(options.out) if name and options.engine == "local" else None
        written = path or snapshot.recordings.path
        if options.replay is not None and written is not None and written.resolve() == options.replay.resolve():
            raise CommandError(
                f"--replay {options.replay}: this run would write its own calls to the same file; "
                f"choose another {'--out' if path else 'recordings.path'}"
            )
        return LocalSource(options.config, snapshot, path, name)
    if options.replay is not None:
        raise CommandError("--replay and --base-url cannot be used together; remove one of them")
    return RemoteSource(options.base_url, read_key(options.key), options.timeout, name)


def _check_models(options: RunOptions, models: Mapping[str, int], configured: Collection[str]) -> None:
    """Raise ``CommandError`` for a model that the configuration does not have. ``models``: as for ``_source``."""
    for name, line in models.items():
        if name not in configured:
            where = f"--model {name}" if options.model is not None else f"{options.data}:{line}: {quoted(name)}"
            raise CommandError(f"{where}: no such model{suggest(name, configured)}; gateway models lists them")


def _name_and_hash(path: Path) -> str:
    with path.open("rb") as file:
        return f"{path.name}@sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _facts(options: RunOptions, source: GatewaySource) -> dict[str, Any]:
    """Return what the manifest says about this run and may change: its gateway, and where it is recorded."""
    path = _recording(source)
    return {
        "gateway": options.base_url or str(options.config),
        "run": source.run or None,
        "recording": None if path is None else path.name,
    }


def _recording(source: GatewaySource) -> Path | None:
    """Return the run's own file of recordings. None: this run has none."""
    from gateway.evaluate.running.gateways import LocalSource

    return source.recording if isinstance(source, LocalSource) else None


def _report(out: Path, results: dict[str, Any], missing: int, source: GatewaySource) -> None:
    """Print the result of the run on standard error. ``missing``: the number of rows that were not sent."""
    from gateway.evaluate.running.output import manifest_path

    recorded = f", {path}" if (path := _recording(source)) else ""
    left = f", {missing} not asked yet" if missing else ""
    print(f"{results['answered']} of {results['rows'] + missing} rows answered, {results['failed']} failed{left}: "
          f"{out}, {manifest_path(out)}{recorded}", file=sys.stderr)  # fmt: skip
    if results["classes"].keys() - {"whole", "failed"}:
        print(f"answers: {_counts(results['classes'])}; gateway report {out} shows them by model", file=sys.stderr)
    if number := results["unchecked_tool_calls"]:
        print(f"tool calls: those of {counted(number, 'row')} were checked only for their form; gateway report {out} "
              "compares them with the tools of the requests, where these are recorded", file=sys.stderr)  # fmt: skip
    if results["notices"]:
        print(f"notices: {_counts(results['notices'])}", file=sys.stderr)
    if results["errors"]:
        print(f"errors: {_counts(results['errors'])}; {out} contains the error of each failed row\n"
              f"the first error is {printable(results['first_error'])}", file=sys.stderr)  # fmt: skip
    if number := results["notices"].get("run_not_recorded"):
        print_note(f"the gateway has not recorded {counted(number, 'row')} of the run {source.run}, so gateway report "
                   f"and gateway why have only what {out} contains: no prompts, parameters, tools or events. Its "
                   "notices name what to change")  # fmt: skip
    for name, model in results["models"].items():
        for kind in ("templates", "dataset_prompts"):
            if len(model[kind].keys() - {"none"}) > 1:
                print_note(f"the {kind} of {printable(name)} differ between rows: {', '.join(model[kind])}")


def _counts(numbers: dict[str, int]) -> str:
    return printable(", ".join([f"{name} ({number})" for name, number in numbers.items()]))


def _is_given(context: click.Context, option: str) -> bool:
    """Return whether an option is on the command line."""
    return context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE
