"""Ask a running gateway one question, and print the answer while it arrives.

The answer goes to standard output. Reasoning, times, notices and errors go to standard error.

Exit code 1: no gateway answers, or it answers with an error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from gateway.cli.call_options import key_option, param_option, read_key, url_option
from gateway.cli.completion import complete_model
from gateway.cli.options import CommandError, argument, option, parameter, print_note, takes, verb

EXAMPLES = """Examples:
  gateway ask demo "1+1=?"
  gateway ask demo "1+1=?" --param temperature=1 --param seed=7
  echo "1+1=?" | gateway ask demo --system "Answer with a number." > answer.txt
  gateway ask my-model "hi" --url http://10.0.0.5:8000 --key env:GATEWAY_KEY
"""


DEFAULT_URL = "http://127.0.0.1:8000"


def _configured_url() -> str:
    """Return the address of the gateway that ``./gateway.yaml`` configures; ``DEFAULT_URL`` without this file."""
    from gateway.config.load import configured_server
    from gateway.config.sections.server import local_url

    config = Path("gateway.yaml")
    if not config.exists():
        return DEFAULT_URL
    if (server := configured_server(config, os.environ)) is None:
        raise CommandError("gateway.yaml has problems; list them with gateway check, or give --url")
    return local_url(server, server.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The options of ``gateway ask``."""

    model: str = argument(shell_complete=complete_model)
    """the name of a model of the gateway"""
    text: str | None = argument(required=False, metavar="[TEXT]")
    """the question; by default the text on standard input"""
    url: str | None = parameter(partial(url_option, show_default=f"the address in ./gateway.yaml, else {DEFAULT_URL}"))
    """the address of a running gateway, with or without /v1"""
    key: str | None = parameter(key_option)
    system: str | None = option("TEXT")
    """a system message"""
    params: dict[str, Any] = parameter(param_option)
    """a field of the request, such as max_tokens=64; VALUE is JSON or a text; may be repeated"""


@verb(__doc__, EXAMPLES)
@takes(AskOptions)
def command(options: AskOptions) -> int:
    """Print the answer, and then one line with times on standard error."""
    from gateway.cli.connecting.answer import ask, summary

    text = options.text
    if text is None:
        text = "" if sys.stdin.isatty() else sys.stdin.read()
        if not text.strip():
            raise CommandError('the question is missing; give it, as in gateway ask demo "1+1=?"')
    messages = [{"role": "system", "content": options.system}] if options.system is not None else []
    messages.append({"role": "user", "content": text})
    body = {"model": options.model, "messages": messages, **options.params}
    write, think = partial(print, end="", flush=True), partial(click.secho, nl=False, err=True, dim=True)
    answer = asyncio.run(ask(options.url or _configured_url(), read_key(options.key), body, write, think))
    print(flush=True)
    for notice in filter(None, answer.headers.get("x-gateway-notice", "").split("; ")):
        print_note(notice)
    click.secho(summary(answer), err=True, dim=True)
    return 0
