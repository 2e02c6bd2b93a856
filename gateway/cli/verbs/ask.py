"""Ask a running gateway one question, and print the answer while it arrives.

The answer goes to standard output. Reasoning, times, notices and errors go to standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from gateway.cli.completion import complete_model
from gateway.cli.options import CommandError, key_option, param_option, print_note, read_key, url_option, verb

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


@verb(__doc__, EXAMPLES)
@click.argument("model", shell_complete=complete_model, help="the name of a model of the gateway")
@click.argument("text", required=False, metavar="[TEXT]", help="the question; by default the text on standard input")
@url_option("the address of the gateway", show_default=f"the address in ./gateway.yaml, else {DEFAULT_URL}")
@key_option()
@click.option("--system", metavar="TEXT", help="a system message")
@param_option("a field of the request, such as max_tokens=64; VALUE is JSON or a text; may be repeated")
def command(
    model: str,
    text: str | None,
    url: str | None,
    key: str | None,
    system: str | None,
    params: dict[str, Any],
) -> int:
    """Print the answer, and then one line with times on standard error."""
    from gateway.cli.connecting.answer import ask, summary

    if text is None:
        text = "" if sys.stdin.isatty() else sys.stdin.read()
        if not text.strip():
            raise CommandError('the question is missing; give it, as in gateway ask demo "1+1=?"')
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})
    body = {"model": model, "messages": messages, **params}
    write, think = partial(print, end="", flush=True), partial(click.secho, nl=False, err=True, dim=True)
    answer = asyncio.run(ask(url or _configured_url(), read_key(key), body, write, think))
    print(flush=True)
    for notice in filter(None, answer.headers.get("x-gateway-notice", "").split("; ")):
        print_note(notice)
    click.secho(summary(answer), err=True, dim=True)
    return 0
