"""The look of the command line, and the arguments, errors and notes that several verbs share."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gateway.core.errors import CONFIG_FAILED, Problem
from metatemplate.values.words import counted

if TYPE_CHECKING:  # `gateway --help` does not import the configuration's modules
    from gateway.config.snapshot import Snapshot

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Adds an option or an argument to the function of a verb."""


class CommandError(click.ClickException):
    """Raised if a verb cannot do what the command line asks. The message is printed on standard error."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # a constant of the class for click


class HelpText(click.HelpFormatter):
    """The help of a command, with bold headings on a terminal."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        self.write(click.style(f"{heading}:\n", bold=True))


class HelpContext(click.Context):
    """A context that writes its help with ``HelpText``."""

    formatter_class = HelpText


class Verb(click.Command):
    """A command whose epilog has examples. The lines of the epilog are not wrapped."""

    context_class = HelpContext

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog. A line without indentation is a heading."""
        formatter.write_paragraph()
        for line in (self.epilog or "").splitlines(keepends=True):
            formatter.write(line if line.startswith(" ") else click.style(line, bold=True))


def verb(doc: str | None, examples: str) -> Callable[[Callable[..., int]], click.Command]:
    """Return a decorator that makes a function the command of a verb. The function returns the exit code.

    ``doc``: the docstring of the verb's module, which is the help text.
    """
    return click.command(cls=Verb, help=doc, epilog=examples)


def takes(options: type) -> Decorator:
    """Return a decorator that adds the parameters of a class of options to the function of a verb.

    The function gets one object of this dataclass. Its fields are made with ``argument``, ``option``, ``choice``,
    ``flag`` and ``parameter``; the text below a field is the help of its parameter.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        def command(**values: Any) -> int:
            return function(options(**values))

        helps = _texts_of(options)
        added = [one.metadata["add"](one.name, helps.get(one.name)) for one in fields(options)]
        return reduce(lambda found, add: add(found), reversed(added), command)

    return decorate


def _texts_of(options: type) -> dict[str, str]:
    """Return the text below each field of a class and of its bases in the source, without line breaks."""
    found = {}
    for one in options.__mro__[:-1]:
        (definition,) = ast.parse(inspect.getsource(one)).body
        assert isinstance(definition, ast.ClassDef)
        for statement, below in pairwise(definition.body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def parameter(add: Callable[..., Decorator]) -> Any:
    """Return a field of a class of options. ``add``: returns the decorator for a help text, or without one."""
    return field(metadata={"add": lambda name, help: add(help) if help else add()})


def argument(**settings: Any) -> Any:
    """Return a field of a class of options that is an argument. ``settings``: those of ``click.argument``."""
    return field(metadata={"add": lambda name, help: click.argument(name, help=help, **settings)})


def option(metavar: str | None, *names: str, **settings: Any) -> Any:
    """Return a field of a class of options that is an option. ``settings``: those of ``click.option``.

    ``names``: the names of the option. By default it is ``--`` with the name of the field.
    """

    def add(name: str, help: str | None) -> Decorator:
        flags = names or (f"--{name.replace('_', '-')}",)
        return click.option(*flags, name, metavar=metavar, help=help, **settings)

    default = settings.get("default", () if settings.get("multiple") else None)
    return field(default=default, metadata={"add": add})


def choice(*values: str) -> Any:
    """Return a field of a class of options that has one of the values, by default the first."""
    return option(None, type=click.Choice(values), default=values[0])


def flag(*names: str) -> Any:
    """Return a field of a class of options that is an option without a value."""
    return option(None, *names, is_flag=True)


def is_given(name: str) -> bool:
    """Return whether the command line has a parameter of the verb. ``name``: of the field, such as ``base_url``."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


SCORES = "exact|contains|choice|regex:PATTERN"
"""The values of ``--score``."""
FILE_PATH = click.Path(path_type=Path)
"""The type of an argument or option that is a path. Shells complete its value."""


MINIMAL = """\
models:
  my-model:
    template: chat
    targets: [{speaks: chat, url: "http://127.0.0.1:8101/v1"}]
"""
"""The shortest configuration: an OpenAI-compatible server on this machine, which receives the messages unchanged."""


def check_config_exists(config: Path) -> None:
    """Raise ``CommandError``, with a small configuration as an example, if the configuration file does not exist."""
    if not config.exists():
        raise CommandError(
            f"{config}: no such file; give a file with --config, write one with gateway init, try gateway demo, "
            f"or start with:\n\n{MINIMAL}",
            CONFIG_FAILED,
        )


def config_option() -> Decorator:
    """Add the option ``--config``."""
    return click.option(
        "--config",
        type=FILE_PATH,
        default="gateway.yaml",
        metavar="FILE",
        show_default="./gateway.yaml",
        help="the configuration file",
    )


def load_snapshot(config: Path) -> Snapshot:
    """Load the configuration. Raises ``ConfigError`` with every problem, or ``CommandError`` if the file is missing."""
    from gateway.config.load import load

    check_config_exists(config)
    return load(config, os.environ)


def print_error(error: click.ClickException) -> None:
    """Print the message of an error on standard error, and for a wrong command line also the matching help command."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    message = error.format_message()
    if isinstance(error, click.UsageError):  # the message is a sentence of click
        message = f"{message[0].lower()}{message[1:].rstrip('.')}"
        message = message.replace("is not a valid integer range", "is not a whole number")
        if error.ctx is not None and message.startswith("got unexpected extra argument"):
            message += f"; {_takes(error.ctx)}"
        if isinstance(error, click.MissingParameter) and (about := getattr(error.param, "help", None)):
            message += f" ({about})"
        if error.ctx is not None:
            message += f"\n{click.style('help:', fg='yellow')} {error.ctx.command_path} --help"
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True, color=color_setting())


def _takes(context: click.Context) -> str:
    """Return which arguments a verb takes."""
    parameters = context.command.params
    names = [one.make_metavar(context) for one in parameters if isinstance(one, click.Argument)]
    if names:
        return f"{context.command_path} takes only {' '.join(names)}"
    config = any(one.name == "config" for one in parameters)
    way = ": leave it out; all models of gateway.yaml are used, or those of another file with --config FILE"
    return f"{context.command_path} takes no arguments{way if config else ''}"


def color_setting() -> bool | None:
    """Return whether output is coloured: False if ``NO_COLOR`` is set, else None (only on a terminal)."""
    return False if os.environ.get("NO_COLOR") else None


def print_problems(problems: Sequence[Problem]) -> None:
    """Print one line for each problem, and then the number of problems, on standard error."""
    click.echo("\n".join([*map(str, problems), click.style(counted(len(problems), "problem"), fg="red")]), err=True)


def print_note(note: object) -> None:
    """Print a note on standard error."""
    click.echo(f"{click.style('note:', fg='yellow')} {note}", err=True)


def print_notes(snapshot: Snapshot, notes: Iterable[Problem | str]) -> None:
    """Print all notes on a configuration on standard error: see ``all_notes``."""
    for note in all_notes(snapshot, notes):
        print_note(note)


def all_notes(snapshot: Snapshot, notes: Iterable[Problem | str]) -> Iterator[Problem | str]:
    """Yield ``notes``, and notes on models that every worker loads and on markers of models."""
    from gateway.cli.marker_notes import marker_notes
    from gateway.config.schema.backend_kinds import BACKEND_KINDS

    workers = snapshot.server.workers
    embedded = [
        name
        for name, model in snapshot.models.items()
        if any(BACKEND_KINDS[target.speaks].in_process for target in model.targets)
    ]
    if workers > 1 and embedded:
        yield f"each of the {workers} workers loads its own copy of the embedded models: {', '.join(embedded)}"
    yield from notes
    yield from marker_notes(snapshot.models.values())
