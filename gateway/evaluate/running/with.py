"""Run a command, such as a harness, with a gateway of its own, and show what the answers of its calls are.

While the command runs, the models of gateway.yaml are served on a free port of 127.0.0.1, without client keys, and all
calls are recorded in NAME.recording.sqlite in the current folder. The command gets the address in OPENAI_BASE_URL,
OPENAI_API_BASE and OPENAI_API_KEY. In its arguments {base_url}, {chat_url} (the address of chat requests), {host},
{port}, {model} and {key} are replaced. At its end the report of the run is printed on standard error.

Exit code: that of the command; 128 + N after signal N. 2: the command ended with 0, but the scores cannot be read. 3:
the command ended with 0, but no call was answered; or gateway.yaml has a mistake. 126, 127: the command cannot be
started.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.completion import complete_model
from gateway.cli.options import (
    CommandError,
    argument,
    config_option,
    flag,
    load_snapshot,
    option,
    parameter,
    print_note,
    takes,
    verb,
)
from gateway.cli.score_options import ReadScores
from gateway.core.errors import CONFIG_FAILED
from metatemplate.values.words import counted, suggest

if TYPE_CHECKING:
    from gateway.config.snapshot import Snapshot
    from gateway.edge.http_request import HttpRequest

EXAMPLES = """Examples:
  gateway with -- python my_eval.py                the address is in OPENAI_BASE_URL
  gateway with --run monday -- evalscope eval --model demo --eval-type openai_api --api-url {base_url} --datasets gsm8k
  gateway with -- lm-eval run --model local-chat-completions --apply_chat_template --tasks gsm8k \\
      --model_args model=demo,base_url={chat_url}
  gateway with --scores out -- lm-eval run … --log_samples --output_path out    with lm-eval's own score
  gateway with -- inspect eval task.py --model openai/demo --model-base-url {base_url}
  gateway report monday                            the report again
"""
HOST = "127.0.0.1"
PLACEHOLDER = re.compile(r"\{\{\w+\}\}|\{(\w+)\}")
"""A name in braces. Doubled braces, such as those of Jinja, stay."""
NO_ANSWER, NOT_EXECUTABLE, NOT_FOUND = 3, 126, 127
"""Exit codes: no call was answered; as in a shell, the command cannot be executed, or there is no such command."""
ADDRESS_SETTINGS = {
    "lm-eval": "--model_args base_url={chat_url}",
    "evalscope": "--api-url {base_url}",
    "inspect": "--model-base-url {base_url}",
    "guidellm": "target={base_url} of --backend",
    "opencompass": "openai_api_base of its config, which may read OPENAI_BASE_URL from the environment",
    "ais-bench": "url, or host_ip and host_port, of its config, which may read OPENAI_BASE_URL from the environment",
    "promptfoo": "apiBaseUrl of its config, such as '{{env.OPENAI_BASE_URL}}'",
}
"""Program → the setting that gives it the address of a gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithOptions(ReadScores):
    """The options of ``gateway with``."""

    command: tuple[str, ...] = argument(nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
    """the command and its arguments"""
    run: str | None = option("NAME", show_default="the program and the time")
    """the name of the run: that of its file, and of calls that name no run"""
    model: str | None = option("MODEL", shell_complete=complete_model)
    """the model in place of {model}; by default the only one"""
    port: int = option("PORT", type=click.IntRange(0, 65535), default=0, show_default="a free port")
    """the port on 127.0.0.1, for a harness that resumes only at the same address"""
    no_env: bool = flag()
    """do not change the environment of the command"""
    config: Path = parameter(config_option)


@verb(__doc__, EXAMPLES)
@takes(WithOptions)
def command(options: WithOptions) -> int:
    """Run the command, and print the report of its calls on standard error."""
    import uvloop

    from gateway.calls.admission.access import RUN_NAME
    from gateway.evaluate.reporting.source import scores_of
    from gateway.evaluate.running.output import RECORDING, run_name
    from gateway.telemetry.log_writer import log_to_stderr

    run = options.run or run_name(Path(f"{_program(options)[:40]}-{time.strftime('%Y%m%d-%H%M%S')}"))
    if not RUN_NAME.fullmatch(run):
        raise CommandError(f'--run {run}: use 1 to 64 ASCII letters, digits and ".", "_", "-"')
    snapshot, file, begun = load_snapshot(options.config), Path(f"{run}{RECORDING}"), time.time()
    model = _model(options, list(snapshot.models))
    scores_of([run], options.scores, None)  # refuses those of a second run
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise CommandError(f"{file} exists; choose another name with --run, or remove the file") from None
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}; change to a folder that you may write") from None
    log_to_stderr("warning", snapshot.server.log_format, lambda: None)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code, outcomes = runner.run(_run(options, _private(snapshot), file, run, model))
    finally:
        if not file.stat().st_size:  # so that the same command can be given again
            file.unlink()
    return _report(options, file, list(snapshot.models), code, outcomes, begun)


command.allow_interspersed_args = False  # an option after COMMAND belongs to the command


def _program(options: WithOptions) -> str:
    """Return the first word of the command that is a known harness, else the first word."""
    words = [Path(word).name.removesuffix(".py") for word in options.command]
    return next((word for word in words if word.replace("_", "-") in ADDRESS_SETTINGS), words[0])


def _model(options: WithOptions, names: list[str]) -> str:
    """Return the text in place of ``{model}``."""
    if options.model is not None and options.model not in names:
        known = suggest(options.model, names)
        raise CommandError(f"--model {options.model}: no such model{known}; gateway models lists them")
    if options.model is None and len(names) > 1 and any("{model}" in word for word in options.command):
        raise CommandError(f"{{model}}: there are several models; name one with --model: {', '.join(names)}")
    return options.model or names[0]


def _private(snapshot: Snapshot) -> Snapshot:
    """Return the configuration for one listener that only this machine can reach, without client keys and TLS."""
    from gateway.config.snapshot import TlsSpec

    server = replace(snapshot.server, host=HOST, workers=1, admin=None, tls=TlsSpec())
    return replace(snapshot, server=server, keys=(), key_labels=False)


async def _run(options: WithOptions, snapshot: Snapshot, file: Path, run: str, model: str) -> tuple[int, Counter[str]]:
    """Serve while the command runs. Return its exit code, and the number of requests with each outcome.

    Raises ``CommandError`` if the port is taken, or if the command cannot be started.
    """
    from gateway.calls.admission.access import RUN_HEADER
    from gateway.edge.app import RUN_PATH, App
    from gateway.edge.http1.server import HttpServer
    from gateway.evaluate.running.child import run_child
    from gateway.evaluate.running.gateways import note_lost, recorded, running, serving, until_not_full
    from gateway.server.sockets import PortBusy, bind

    async with running(options.config, recorded(snapshot, file)) as runtime:
        app, recorder, outcomes = App(runtime.state), runtime.state.stack.recorder, Counter[str]()

        async def answer(request: HttpRequest) -> None:
            await until_not_full(recorder)
            if not request.path.startswith(RUN_PATH):
                request.headers.setdefault(RUN_HEADER, run.encode("ascii"))
            await app(request)

        try:
            bound = bind(HOST, options.port, choose="another port with --port")
        except PortBusy as error:
            raise CommandError(str(error), CONFIG_FAILED) from None
        server = HttpServer(answer, refused=app.refused_input)
        values = _values(bound.getsockname()[1], model)
        words = [PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word) for word in options.command]
        async with serving(server, bound, snapshot.server.drain):
            print_note(f"run {run}: {values['base_url']}, {file}")
            try:
                code = await run_child(words, os.environ if options.no_env else _environment(values))
            except OSError as error:
                code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
                raise CommandError(f"{options.command[0]}: cannot be started: {error.strerror}", code) from None
        for (_, _, outcome), (number,) in runtime.metrics.snapshot().series["gateway_requests_total"].items():
            outcomes[outcome] += int(number)
    note_lost(recorder, file)
    return code, outcomes


def _values(port: int, model: str) -> dict[str, str]:
    """Return the names of the placeholders in the arguments of a command, with their values."""
    url = f"http://{HOST}:{port}/v1"
    address = {"base_url": url, "chat_url": f"{url}/chat/completions", "host": HOST, "port": str(port)}
    return {**address, "model": model, "key": "none"}


def _environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with the address of the gateway, which no proxy may catch."""
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    direct = direct if direct == "*" else ",".join([*filter(None, [direct]), HOST, "localhost"])
    addresses = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), values["base_url"])
    return {**os.environ, **addresses, "OPENAI_API_KEY": values["key"], "NO_PROXY": direct, "no_proxy": direct}


def _report(
    options: WithOptions, file: Path, models: list[str], code: int, outcomes: Counter[str], begun: float
) -> int:
    """Print the report and what was not answered on standard error, and return the exit code.

    Raises ``CommandError`` if no call was answered, or if the scores cannot be read: then the report has none.
    ``code``: the exit code of the command. ``begun``: when it began; scores that were written before do not count.
    """
    from gateway.evaluate.reporting.report import ReportOptions, print_report

    unread: CommandError | None = None
    for scores in dict.fromkeys([options.scores, ()]) if file.exists() else ():
        try:
            with redirect_stdout(sys.stderr):
                print_report(ReportOptions(run=str(file), config=options.config, scores=scores), begun)
            break
        except CommandError as error:
            if scores:
                unread = error
            else:  # no call has a text
                print_note(error.message)
    answered = outcomes.pop("ok", 0)
    failed = ", ".join([f"{outcome} ({number})" for outcome, number in outcomes.most_common()])
    if answered:
        if failed:
            print_note(f"{counted(outcomes.total(), 'request')} without an answer: {failed}")
        if unread is not None:
            raise CommandError(unread.message, code or unread.exit_code)
        return code
    problem = f"no call was answered: {failed}" if failed else "no call arrived"
    if not failed or outcomes.keys() & {"route_not_found", "model_not_found"}:
        program = _program(options)
        setting = ADDRESS_SETTINGS.get(program.replace("_", "-"), "{base_url} in its arguments, or OPENAI_BASE_URL")
        problem += f"; give {program} the address with {setting}; the models are {', '.join(models)}"
    raise CommandError(problem, code or NO_ANSWER)
