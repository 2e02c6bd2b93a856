"""The command line: ``gateway VERB``. The module of a verb is imported when the verb is used.

``verbs/``              the other verbs
``options``             arguments, errors and notes that several verbs share
``call_options``        the options of verbs that render or call: the model, the conversation, the gateway
``score_options``       the options of verbs that show scores
``rendering``           the models and prompts of ``render``, ``diff`` and ``parity``
``marker_notes``        notes on models whose turns are protected only in part
``terminal``            tables, colours, escaped text and differences between texts
``connecting/``         the steps of ``ask``, ``status``, ``init`` and ``check --live``
``completion``          names that shells complete
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module

import click

from gateway.cli.options import CommandError, Verb, color_setting, print_error, print_problems
from gateway.core.errors import CONFIG_FAILED, ConfigError, GatewayError, as_gateway_error
from metatemplate.errors import InvalidFile, MetaTemplateError
from metatemplate.version import VERSION

OUTPUT_FAILED = 4
"""Exit code of a verb whose output cannot be written."""
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of a full disk, a used up quota, and a limit of the size of files."""
OTHER_WORDS = {"start": "serve", "up": "serve", "new": "init", "validate": "check", "chat": "ask", "convert": "import"}
"""Verb of another program → verb of this program with the same purpose."""

GROUPS = {
    "Start": {
        "cli.verbs.demo": "serve the demo: a small model with a right and a wrong template",
        "cli.verbs.init": "write a first gateway.yaml from an engine's models",
        "cli.verbs.serve": "serve the configured models over HTTP",
        "cli.verbs.ask": "ask a running gateway one question",
        "cli.verbs.check": "check the configuration, and run the examples in the templates",
    },
    "Prompts": {
        "workshop.comparing.render": "show the exact prompt that a model receives",
        "workshop.comparing.diff": "show where the prompts of two templates differ",
        "workshop.comparing.parity": "compare a template with a reference over many conversations",
        "cli.verbs.templates": "list the templates, or print one",
        "workshop.importing.import": "convert a template from another format",
    },
    "Evaluation": {
        "evaluate.running.run": "send every row of a file to a model, or continue such a run",
        "evaluate.running.with": "run a command with a gateway of its own, and report on its calls",
        "evaluate.reporting.report": "show what the answers of a run are: whole, cut, empty, looping",
        "evaluate.reporting.why": "explain why the answers of two runs differ",
        "viewer.view": "show a run, or why two runs differ, in a browser",
        "evaluate.reporting.recordings": "list recorded calls, or show one",
        "evaluate.reporting.recordings_merge": "merge files of recordings",
        "evaluate.reporting.recordings_export": "print recorded calls as JSON, one object a line",
        "evaluate.reporting.recordings_prune": "remove recorded calls",
    },
    "Operation": {
        "cli.verbs.models": "list the configured models",
        "cli.verbs.keys": "make, list and revoke client keys",
        "cli.verbs.status": "show what a running gateway serves, and what it avoids",
    },
    "Files": {
        "cli.verbs.schema": "print the JSON Schema of a settings file, for editors",
        "cli.verbs.docs": "list the pages of the documentation, or print one",
    },
}
"""Group → module below ``gateway`` → summary of its verb, in the order of ``gateway --help``."""


def verb_of(module: str) -> str:
    """Return the verb of a module: ``recordings merge``, which has two words, for ``recordings_merge``."""
    return module.rpartition(".")[2].replace("_", " ")


VERBS = {verb_of(module): module for modules in GROUPS.values() for module in modules}
"""Verb → the module of its command."""

EXAMPLES = """Examples:
  gateway demo                                    serve the demo, which needs no files
  gateway ask demo "1+1=?"                        ask the demo, in a second terminal
  gateway init --engine http://127.0.0.1:8101/v1  write a first gateway.yaml
  gateway serve                                   serve ./gateway.yaml on 127.0.0.1:8000
  gateway render demo -m "user:1+1=?"             the prompt, byte for byte
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway with -- python my_eval.py               a harness, which reads OPENAI_BASE_URL
  gateway VERB --help                             options and examples of a verb
"""


class Verbs(Verb, click.Group):
    """All verbs. The module of a verb is imported when the verb is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. The words ``help`` and ``version`` are read as the options with these names."""
        if args[:1] == ["help"]:
            args = [*args[1:3], "--help"] if args[1:] != ["version"] else ["--help"]
        elif args[:1] == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs of each group, with the summaries below each other."""
        width = max(map(len, VERBS))
        for group, summaries in GROUPS.items():
            with formatter.section(group):
                verbs = [verb_of(module).ljust(width) for module in summaries]
                formatter.write_dl([*zip(verbs, summaries.values(), strict=True)])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the first words of the verbs, which shells complete and suggestions name."""
        return [verb for verb in super().list_commands(ctx) if " " not in verb]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and the arguments of a verb."""
        if args and (meant := OTHER_WORDS.get(args[0])) is not None:
            raise click.UsageError(f"no such command {args[0]!r}; use gateway {meant}", ctx)
        if (both := " ".join(args[:2])) in VERBS:
            args = [both, *args[2:]]
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load_verb(str(name)), rest

    def invoke(self, ctx: click.Context) -> int:
        """Run the verb and return the exit code. Errors of the gateway become messages on standard error."""
        try:
            code = int(super().invoke(ctx))
            sys.stdout.flush()
        except (ConfigError, InvalidFile) as error:
            print_problems(error.problems)
            return CONFIG_FAILED
        except (GatewayError, MetaTemplateError) as raised:
            found = as_gateway_error(raised)
            where = f"{found.param}: " if found.param and found.param not in found.message else ""
            raise click.ClickException(f"{found.code}: {where}{found.message}") from None
        except BrokenPipeError:  # `gateway render … | head`
            _discard_stdout()
            return 0
        except KeyboardInterrupt:
            return 130
        return code


def load_verb(name: str) -> click.Command:
    """Import the module of a verb, and return the verb's command."""
    command: click.Command = import_module(f"gateway.{VERBS[name]}").command
    return command


COMMANDS = Verbs(
    help="An OpenAI-compatible gateway that sends every local model the exact prompt it was trained on.",
    epilog=EXAMPLES,
    commands={verb: click.Command(verb) for verb in VERBS},
    subcommand_metavar="VERB …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
click.version_option(VERSION, message="gateway %(version)s")(COMMANDS)


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code of the process."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # prompts are UTF-8 in every locale
    try:
        return int(COMMANDS.main(argv, "gateway", standalone_mode=False, color=color_setting()))
    except click.ClickException as error:
        print_error(error)
        return error.exit_code
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _discard_stdout()
        print_error(CommandError(f"the output cannot be written: {error.strerror}"))
        return OUTPUT_FAILED


def _discard_stdout() -> None:
    """Discard what standard output has not written yet. Otherwise Python reports the error again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
