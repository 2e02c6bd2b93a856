"""The look of the command line, and the arguments, errors and notes that several verbs share."""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from gateway.cli.completion import complete_model, complete_prompt, complete_template
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


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options that choose a model, or a template in its place. See ``check_one_model``."""

    model: str | None = argument(required=False, metavar="[MODEL]", shell_complete=complete_model)
    """a configured model"""
    template: str | None = option("FILE|NAME", shell_complete=complete_template)
    """a template instead of MODEL; needs no configuration"""
    config: Path = parameter(config_option)


def http_url(text: str) -> str:
    """Return the value of an option if the value is an HTTP address. Raises ``BadParameter`` for other values."""
    try:
        valid = urlsplit(text).scheme in ("http", "https") and bool(urlsplit(text).hostname)
    except ValueError:
        valid = False
    if not valid:
        raise click.BadParameter(f'expected an address such as http://127.0.0.1:8000/v1, not "{text}"')
    return text


def url_option(help: str, *, name: str = "url", show_default: str | None = None) -> Decorator:
    """Add the option ``--url`` or ``--base-url``: the address of a gateway, with or without ``/v1``."""
    names = ("--url", "--base-url", name)
    return click.option(*names, type=http_url, metavar="URL", show_default=show_default, help=help)


def key_option() -> Decorator:
    """Add the option ``--key``. See ``read_key``."""
    return click.option("--key", metavar="env:NAME", help="the environment variable that contains the API key")


KEY_HINT = "; give the key with --key env:NAME, where NAME is an environment variable that contains it"
"""What to do after a 401 of a gateway."""


def read_key(source: str | None) -> str | None:
    """Return the value of the environment variable that ``--key`` names. Raises ``CommandError`` if it is not set."""
    if source is None:
        return None
    kind, _, name = source.partition(":")
    if kind != "env":
        raise CommandError("--key: give env:NAME, the name of an environment variable, and not the key itself")
    if name not in os.environ:
        raise CommandError(f"--key {source}: the environment variable {name} is not set; set it to the key")
    return os.environ[name]


def param_option(help: str) -> Decorator:
    """Add the option ``--param``, a mapping of fields of a request. ``help``: the help text of the option."""
    return click.option(
        "--param", "params", multiple=True, type=_param, callback=_as_dict, metavar="NAME=VALUE", help=help
    )


def _param(text: str) -> tuple[str, Any]:
    name, value = _name_and_value(text, "NAME=VALUE, such as max_tokens=64")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _name_and_value(text: str, form: str) -> tuple[str, str]:
    """Return the two parts of a value of an option. ``form``: how it is written, with an example."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f'expected {form}, not "{text}"')
    return name, value


def _as_dict(context: click.Context, parameter: click.Parameter, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def check_one_model(options: ModelOptions) -> None:
    """Check that exactly one of ``MODEL`` and ``--template`` is given. Raises ``UsageError``."""
    if (options.model is None) == (options.template is None):
        raise click.UsageError("give either MODEL or --template", click.get_current_context())


def _message(text: str) -> dict[str, str]:
    role, colon, content = text.partition(":")
    if not colon or not role.strip():
        raise click.BadParameter(f'expected ROLE:TEXT, such as user:hello, not "{text}"')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise click.BadParameter("the text is not valid UTF-8")
    return {"role": role.strip(), "content": content}


def _variable(text: str) -> tuple[str, str]:
    return _name_and_value(text, 'NAME=TEXT, such as question="1+1=?"')


@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """The options that give a conversation. See ``read_conversation``."""

    messages: tuple[dict[str, str], ...] = option("ROLE:TEXT", "-m", "--message", multiple=True, type=_message)
    """one message, such as user:hello; may be repeated. Without -m, JSON is read from standard input: a list of
    messages, or a chat request"""
    prompt: str | None = option("ID", shell_complete=complete_prompt)
    """a dataset prompt instead of messages; needs the configuration"""
    variables: tuple[tuple[str, str], ...] = option("NAME=TEXT", "--var", multiple=True, type=_variable)
    """a variable of the dataset prompt; may be repeated. Without --var, the variables are read from standard input: a
    JSON object, such as a row of the dataset"""


def read_conversation(options: ConversationOptions) -> dict[str, Any]:
    """Return the body of a chat request without the field ``model``.

    Messages or variables that the command line does not contain are read as JSON from standard input.
    """
    if options.prompt is not None:
        if options.messages:
            raise CommandError("-m and --prompt cannot be used together; remove one of them")
        row = dict(options.variables) or _read_json(
            'write JSON such as {"question": "1+1=?"}, or give --var question=TEXT'
        )
        if not isinstance(row, dict):
            raise CommandError("standard input must contain a JSON object with the variables of the prompt", 1)
        return {"gateway": {"prompt": {"id": options.prompt, "variables": row}}}
    if options.variables:
        raise CommandError("--var needs a dataset prompt; add --prompt, or remove --var")
    if options.messages:
        return {"messages": list(options.messages)}
    body = _read_json('write JSON such as [{"role": "user", "content": "hello"}], or give -m "user:hello"')
    if isinstance(body, list):
        return {"messages": body}
    if isinstance(body, dict):
        return body
    raise CommandError("standard input must contain a JSON list of messages, or a chat request", 1)


def _read_json(what_to_give: str) -> Any:
    """Return the JSON value on standard input. The JSON rules are as strict as those of the HTTP endpoints."""
    if sys.stdin.isatty():
        raise CommandError(f"standard input is empty; {what_to_give}", 1)
    import orjson  # no NaN, no lone surrogate, UTF-8 only

    text = sys.stdin.buffer.read()
    if not text.strip():
        raise CommandError(f"standard input is empty; {what_to_give}", 1)
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise CommandError(f"standard input is not JSON ({error}); {what_to_give}", 1) from None


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
