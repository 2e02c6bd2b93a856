"""The options of the verbs that render or call: the model, the conversation, the gateway's address and key."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gateway.cli.completion import complete_model, complete_prompt, complete_template
from gateway.cli.options import (
    CommandError,
    Decorator,
    argument,
    config_option,
    option,
    parameter,
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
