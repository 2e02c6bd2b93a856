"""The command line: ``gateway VERB``. The module of a verb is imported when the verb is used.

``verbs/``              the other verbs
``options``             arguments, errors and notes that several verbs share
``call_options``        the options of verbs that render or call: the model, the conversation, the gateway
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
        "demo": "serve the demo: a small model with a right and a wrong template",
        "init": "write a first gateway.yaml from an engine's models",
        "serve": "serve the configured models over HTTP",
        "ask": "ask a running gateway one question",
        "check": "check the configuration, and run the examples in the templates",
    },
    "Prompts": {
        "render": "show the exact prompt that a model receives",
        "diff": "show where the prompts of two templates differ",
        "parity": "compare a template with a reference over many conversations",
        "templates": "list the templates, or print one",
        "import": "convert a template from another format",
    },
    "Evaluation": {
        "run": "send every row of a file to a model, or continue such a run",
        "with": "run a command with a gateway of its own, and report on its calls",
        "report": "show what the answers of a run are: whole, cut, empty, looping",
        "why": "explain why the answers of two runs differ",
        "view": "show a run, or why two runs differ, in a browser",
        "recordings": "list recorded calls, or show one",
    },
    "Operation": {
        "models": "list the configured models",
        "keys": "make, list and revoke client keys",
        "status": "show what a running gateway serves, and what it avoids",
    },
    "Files": {
        "schema": "print the JSON Schema of a settings file, for editors",
        "docs": "list the pages of the documentation, or print one",
    },
}
"""Group → verb → summary, in the order of ``gateway --help``."""

VERBS = {verb: summary for verbs in GROUPS.values() for verb, summary in verbs.items()}
"""Verb → summary."""

PACKAGES = {
    **dict.fromkeys(("render", "diff", "parity"), "gateway.workshop.comparing"),
    "import": "gateway.workshop.importing",
    **dict.fromkeys(("run", "with"), "gateway.evaluate.running"),
    **dict.fromkeys(("report", "why", "recordings"), "gateway.evaluate.reporting"),
    "view": "gateway.viewer",
}
"""Verb → the package of its module, beside the files that only this verb uses. The others are in ``verbs``."""

EXAMPLES = """Examples:
  gateway demo                                    serve the demo, which needs no files
  gateway ask demo "1+1=?"                        ask the demo, in a second terminal
  gateway init --engine http://127.0.0.1:8101/v1  write a first gateway.yaml
  gateway serve                                   serve ./gateway.yaml on 127.0.0.1:8000
  gateway check && echo fine                      exit code 1 if there are problems
  gateway render demo -m "user:1+1=?"             the prompt, byte for byte
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway parity demo                             compare with the model's own chat template
  gateway import models/my-chat-7b                convert the model's own chat template
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway VERB --help                             options and examples of a verb
"""


class Verbs(Verb, click.Group):
    """All verbs. The module of a verb is imported when the verb is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. The words ``help`` and ``version`` are read as the options with these names."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"] if args[1:] != ["version"] else ["--help"]
        elif args[:1] == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of ``VERBS``."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs of each group, with the summaries below each other."""
        width = max(map(len, VERBS))
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(width), summary) for verb, summary in verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and the arguments of a verb."""
        if args and (meant := OTHER_WORDS.get(args[0])) is not None:
            raise click.UsageError(f"no such command {args[0]!r}; use gateway {meant}", ctx)
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
    command: click.Command = import_module(f"{PACKAGES.get(name, 'gateway.cli.verbs')}.{name}").command
    return command


COMMANDS = Verbs(
    help="An OpenAI-compatible gateway that sends every local model the exact prompt it was trained on.",
    epilog=EXAMPLES,
    commands={verb: click.Command(verb, help=summary) for verb, summary in VERBS.items()},
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


if __name__ == "__main__":
    sys.exit(main())
