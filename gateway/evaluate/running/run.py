"""Send every row of a file to a model, and write one output line for each row, as in OpenAI's batch files.

The gateway runs in this process, from the configuration file. With --base-url, a running gateway is used instead. To
continue a run that was interrupted or killed, give the same command again: each row is in the output once.
OUT.manifest.json contains the run's settings, template hashes, effective parameters, token totals and latencies.

Exit code 0: every row has an answer. 1: some rows failed, or the run ended early. 2: the rows are wrong, or the
output is that of another run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gateway.cli.call_options import param_option, read_key, url_option
from gateway.cli.completion import complete_model, complete_prompt
from gateway.cli.options import (
    FILE_PATH,
    SCORES,
    CommandError,
    argument,
    choice,
    config_option,
    flag,
    is_given,
    load_snapshot,
    option,
    parameter,
    print_note,
    takes,
    verb,
)
from gateway.cli.terminal import progress
from metatemplate.values.words import counted, printable, quoted, suggest

if TYPE_CHECKING:
    from gateway.evaluate.running.gateways import GatewaySource
    from gateway.evaluate.running.manifest import Manifest
    from gateway.evaluate.running.output import OutputFile
    from gateway.evaluate.running.rows import DataSurvey, RowForm

EXAMPLES = """Examples:
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway run batch.jsonl --out answers.jsonl --base-url http://127.0.0.1:8000/v1
  gateway run questions.jsonl --model demo --keep answer --param max_tokens=8 --out answers.jsonl
  gateway run questions.jsonl --model demo --out answers.jsonl --retry-failed
  gateway run questions.jsonl --model demo --out again.jsonl --replay answers.recording.sqlite
  gateway run questions.jsonl --model demo --keep answer --score exact --out answers.jsonl
  gateway run questions.jsonl --model demo --out answers.jsonl --shard $SLURM_ARRAY_TASK_ID/16
  gateway run questions.jsonl --model demo --out answers.jsonl --merge 16

Rows, one JSON object on each line:
  {"messages": [{"role": "user", "content": "1+1=?"}]}
  {"custom_id": "sum-1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}
  {"question": "1+1=?"}                            the variables of a dataset prompt (--prompt)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``gateway run``. Those that ``RowForm`` also has say how a line becomes a request."""

    data: Path = argument(type=FILE_PATH)
    """the rows, a file with one JSON object on each line"""
    out: Path = option("FILE", type=FILE_PATH, required=True)
    """the output file; an earlier run is continued"""
    model: str | None = option("MODEL", shell_complete=complete_model)
    """the model for rows that do not name a model"""
    prompt: str | None = option("ID", shell_complete=complete_prompt)
    """a dataset prompt; each row contains the prompt's variables"""
    infer: str = choice("gen", "ppl", "multiturn")
    """gen: an answer; ppl: the likelihood of each candidate; multiturn: the answers of a whole dialogue"""
    turns: str = choice("every", "every_with_gt", "last")
    """for --infer multiturn: which turns are asked, and with which history"""
    examples: Path | None = option("FILE", type=FILE_PATH)
    """examples before each question, one JSON object on each line, instead of the examples of the dataset prompt"""
    params: Mapping[str, Any] = parameter(param_option)
    """a field of the requests, such as max_tokens=64, for rows that do not set it; VALUE is JSON or a text; may be
    repeated"""
    keep: tuple[str, ...] = option("COLUMN", multiple=True)
    """copy a column to the output, and do not send it as a field; may be repeated"""
    send: tuple[str, ...] = option("COLUMN", multiple=True)
    """send a column, or a key of messages, that is not a known field; may be repeated"""
    config: Path = parameter(config_option)
    base_url: str | None = parameter(partial(url_option, name="base_url"))
    """the address of a running gateway, with or without /v1, in place of one in this process"""
    key: str | None = option("env:NAME")
    """the environment variable with the client key for --base-url"""
    concurrency: int = option("N", type=click.IntRange(min=1), default=32)
    """concurrent requests, at most"""
    engine: str = choice("local", "ray")
    """local: this process sends the requests; ray: the machines of a Ray cluster send them"""
    shard: str | None = option("K/N")
    """send only each Nth row, from row K on (0/16 to 15/16); the output's name has the shard in it: OUT.K-of-N"""
    merge: int | None = option("N", type=click.IntRange(min=1))
    """send nothing, and join the outputs, recordings and manifests of N shards into --out"""
    retries: int = option("N", type=click.IntRange(min=0), default=5)
    """the maximum number of retries of a row, while the gateway is busy or restarts"""
    timeout: float = option("SECONDS", type=float, default=3600)
    """the timeout of one request to --base-url; in this process the policy's delivery.timeout.total applies"""
    retry_failed: bool = flag()
    """send again the rows that failed in earlier runs"""
    allow_changes: bool = flag()
    """keep the rows of an earlier run, even if data, prompt, model or fields have changed"""
    recording: bool = option(None, "--recording/--no-recording", default=True)
    """record the calls of a gateway in this process, in a file beside the output; name the run to another gateway,
    which records it if its policies say so"""
    replay: Path | None = option("FILE", type=FILE_PATH)
    """answer from a recording of an earlier run, in place of the models' targets"""
    pace: Literal["none", "recorded"] | None = option(
        None, type=click.Choice(["none", "recorded"]), show_default="none"
    )
    """how fast --replay answers: at once, or after the recorded times"""
    score: str | None = option(SCORES)
    """print the report of the run at its end, with this score: see gateway report"""
    answer: str = option("COLUMN", default="answer")
    """the kept column with the expected text, for --score"""
    evidence: bool = flag()
    """ask for the two likeliest tokens at each place, and for token ids, for gateway why"""

    @property
    def form(self) -> RowForm:
        """The options that say how a line becomes a request. Raises ``CommandError`` for a wrong file of examples."""
        from gateway.evaluate.running.rows import RowForm, read_examples

        values = {one.name: getattr(self, one.name) for one in fields(RowForm)}
        return RowForm(**{**values, "examples": read_examples(self.examples) if self.examples else ()})


@verb(__doc__, EXAMPLES)
@takes(RunOptions)
def command(options: RunOptions) -> int:
    """Send all rows that are not in the output yet, and print a summary on standard error."""
    import uvloop

    from gateway.evaluate.reporting.report import ReportOptions, print_report
    from gateway.evaluate.reporting.source import row_score
    from gateway.evaluate.running.output import OutputFile
    from gateway.evaluate.running.rows import survey
    from gateway.evaluate.running.shards import rows_of_shard, shard_path

    score = row_score(options.score, options.answer)
    _check(options)
    form, rows = options.form, rows_of_shard(options.shard)
    if options.shard is not None:
        options = replace(options, out=shard_path(options.out, rows.start, rows.step))
    try:
        found = survey(options.data, form, score)
        if options.merge is not None:
            code = _merge(options, options.merge, form, found)
        else:
            with OutputFile(options.out) as output, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(_run(options, form, found, rows, output))
    except KeyboardInterrupt:
        print_note("interrupted; the same command continues the run")
        raise
    if options.score is not None:
        out = str(options.out)
        print_report(ReportOptions(run=out, config=options.config, score=options.score, answer=options.answer))
    return code


def _check(options: RunOptions) -> None:
    """Raise ``CommandError`` for options that cannot be used together."""
    if options.merge is not None and (options.shard is not None or options.retry_failed):
        raise CommandError("--merge sends no rows; remove --shard and --retry-failed, or send rows without --merge")
    if options.base_url is not None and is_given("config"):
        raise CommandError("--config and --base-url cannot be used together; remove one of them")
    if options.infer != "multiturn" and is_given("turns"):
        raise CommandError("--turns applies only to --infer multiturn; add this option, or remove --turns")
    if options.examples is not None and options.prompt is None:
        raise CommandError("--examples applies only to a dataset prompt; add --prompt, or remove --examples")
    if options.send and options.prompt is not None:
        raise CommandError("--send does not apply to --prompt, which has all columns as variables; remove --send")
    if options.score is None and is_given("answer"):
        raise CommandError("--answer applies only to --score; add --score, or remove --answer")
    if options.score is not None and options.answer not in options.keep:
        raise CommandError(
            f"--score compares with the column {options.answer}; add --keep {options.answer}, "
            "or name another kept column with --answer"
        )
    if options.evidence and options.infer != "gen":
        raise CommandError("--evidence applies only to --infer gen; remove one of them")
    if options.base_url is None and options.key is not None:
        raise CommandError("--key applies only to --base-url; a gateway in this process needs no key")
    if options.pace is not None and options.replay is None:
        raise CommandError("--pace applies only to --replay; add this option, or remove --pace")
    if options.replay is not None:
        _check_replay(options.replay)
    if options.replay is not None and options.base_url is not None:
        raise CommandError("--replay and --base-url cannot be used together; remove one of them")


def _check_replay(path: Path) -> None:
    """Raise ``CommandError`` for a file that is not a recording."""
    from gateway.evaluate.running.output import recording_path
    from gateway.storage.recordings import is_recording

    if not path.exists():
        raise CommandError(f"{path}: no such file; give the recording of an earlier run")
    if not is_recording(path):
        beside = recording_path(path)
        hint = f"its recording is {beside}" if beside.exists() else "give the recording of an earlier run"
        raise CommandError(f"--replay {path} is not a recording; {hint}")


def _merge(options: RunOptions, count: int, form: RowForm, found: DataSurvey) -> int:
    """Join ``count`` shards, and print a summary. Return the exit code."""
    from gateway.evaluate.reporting.source import reading
    from gateway.evaluate.running.identity import form_facts
    from gateway.evaluate.running.output import run_name
    from gateway.evaluate.running.rows import read_rows
    from gateway.evaluate.running.shards import merge_shards

    ids = [row.custom_id for row in read_rows(options.data, form)]
    described = form_facts(found, form) | _replay_facts(options)
    with reading():
        results, recording = merge_shards(options.out, count, ids, described, allow_changes=options.allow_changes)
    _report(options.out, results, 0, run_name(options.out), recording)
    return 1 if results["failed"] else 0


async def _run(options: RunOptions, form: RowForm, found: DataSurvey, part: slice, output: OutputFile) -> int:
    """Send the rows of ``part``, and print a summary. Return the exit code."""
    from gateway.evaluate.running.ask import RetryLimits, ask_all
    from gateway.evaluate.running.gateways import GatewayUnreachable
    from gateway.evaluate.running.identity import identity
    from gateway.evaluate.running.ray_data import ask_with_ray
    from gateway.evaluate.running.rows import read_rows
    from gateway.server.memory import tune_memory

    limits = RetryLimits(retries=options.retries)
    source = _source(options, {model: row.line for (_, model), row in found.first.items()})
    try:
        async with source.open(options.concurrency) as gateway:
            described = await identity(gateway, found, form, limits)
            manifest = await asyncio.to_thread(_manifest, options, described, source)
            manifest.begin(len(output.done), allow_changes=options.allow_changes)
            if options.retry_failed:
                output.drop_failed()
            number, failed = len(range(found.rows)[part]), 0
            left = number - len(output.done)

            def write(line: bytes, answered: bool) -> None:
                nonlocal failed
                output.append(line)
                failed += not answered
                bar.update(1, failed)

            tune_memory()
            own = islice(read_rows(options.data, form), part.start, None, part.step)
            rows = (row for row in own if row.custom_id not in output.done)
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
                missing = 0 if complete else number - results["rows"]
                _report(options.out, results, missing, source.run, source.recording)
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
    from gateway.evaluate.running.output import manifest_path, recording_path, run_name
    from gateway.storage.recordings import is_recording

    name = run_name(options.out) if options.recording else ""
    if options.base_url is not None:
        return RemoteSource(options.base_url, read_key(options.key), options.timeout, name)
    snapshot = load_snapshot(options.config)
    for model, line in models.items():
        if model not in snapshot.models:
            where = f"--model {model}" if options.model is not None else f"{options.data}:{line}: {quoted(model)}"
            known = suggest(model, snapshot.models)
            raise CommandError(f"{where}: no such model{known}; gateway models lists them")
    if options.replay is not None:
        snapshot = replayed(snapshot, models, options.replay, options.pace or "none")
    if snapshot.recordings.run == "off":
        name = ""
    path = recording_path(options.out) if name else None
    written = path or snapshot.recordings.path
    if options.replay is not None and written is not None and written.resolve() == options.replay.resolve():
        raise CommandError(
            f"--replay {options.replay}: this run would write its own calls to the same file; "
            f"choose another {'--out' if path else 'recordings.path'}"
        )
    if path is not None and path.is_file() and is_recording(path) and not manifest_path(options.out).exists():
        raise CommandError(f"{path} has the calls of another run; choose another --out")
    return LocalSource(options.config, snapshot, path, name)


def _manifest(options: RunOptions, described: dict[str, Any], source: GatewaySource) -> Manifest:
    """Return the manifest of the run. ``described``: its identity without the recording that answers."""
    from gateway.evaluate.running.manifest import Manifest

    facts = {
        "gateway": options.base_url or str(options.config),
        "run": source.run or None,
        "recording": None if source.recording is None else source.recording.name,
        **({} if options.shard is None else {"shard": options.shard}),
    }
    return Manifest(options.out, described | _replay_facts(options), facts)


def _replay_facts(options: RunOptions) -> dict[str, str]:
    """Return the part of a run's identity about the recording that answers."""
    from gateway.evaluate.running.rows import file_sha256

    path = options.replay
    return {} if path is None else {"replay": f"{path.name}@sha256:{file_sha256(path)}"}


def _report(out: Path, results: dict[str, Any], missing: int, run: str, recording: Path | None) -> None:
    """Print the result of the run on standard error. ``missing``: the number of rows that were not sent."""
    from gateway.evaluate.running.output import manifest_path

    tell = partial(click.echo, err=True)
    recorded = "" if recording is None else f", {recording}"
    left = f", {missing} not asked yet" if missing else ""
    answered = f"{results['answered']} of {results['rows'] + missing} rows answered, {results['failed']} failed{left}"
    tell(f"{answered}: {out}, {manifest_path(out)}{recorded}")
    if results["classes"].keys() - {"whole", "failed"}:
        tell(f"answers: {_counts(results['classes'])}; gateway report {out} shows them by model")
    if number := results["unchecked_tool_calls"]:
        tell(
            f"tool calls: those of {counted(number, 'row')} were checked only for their form; gateway report {out} "
            "compares them with the tools of the requests, where these are recorded"
        )
    if results["notices"]:
        tell(f"notices: {_counts(results['notices'])}")
    if results["errors"]:
        tell(f"errors: {_counts(results['errors'])}; {out} contains the error of each failed row")
        tell(f"the first error is {printable(results['first_error'])}")
    if number := results["notices"].get("run_not_recorded"):
        print_note(
            f"the gateway has not recorded {counted(number, 'row')} of the run {run}, so gateway report and "
            f"gateway why have only what {out} contains: no prompts, parameters, tools or events. Its notices name "
            "what to change"
        )
    for name, model in results["models"].items():
        for kind in ("templates", "dataset_prompts"):
            if len(model[kind].keys() - {"none"}) > 1:
                print_note(f"the {kind} of {printable(name)} differ between rows: {', '.join(model[kind])}")


def _counts(numbers: dict[str, int]) -> str:
    return printable(", ".join([f"{name} ({number})" for name, number in numbers.items()]))
