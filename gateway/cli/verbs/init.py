"""Write a first gateway.yaml. An existing file is never overwritten.

With --engine, the engine is asked which models it serves, and each of them becomes a model of the gateway. The engine
writes the prompts until you choose a template, because its list of models does not name the templates. Comments in the
file explain how to choose a template. Without --engine, the file is a starter with one model, to fill in.

Exit code 1: the engine does not answer, or lists no models. 2: the file exists.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from gateway.cli.call_options import http_url, key_option, read_key
from gateway.cli.options import CommandError, config_option, print_note, print_problems, verb
from gateway.core.errors import GatewayError

EXAMPLES = """Examples:
  gateway init
  gateway init --engine http://127.0.0.1:8101/v1
  gateway init --engine https://engine.example/v1 --key env:ENGINE_KEY --config conf/gateway.yaml
"""


@verb(__doc__, EXAMPLES)
@click.option(
    "--engine", type=http_url, metavar="URL", help="the address of a server with OpenAI's API, such as vLLM's"
)
@key_option()
@config_option()
def command(engine: str | None, key: str | None, config: Path) -> int:
    """Write the file, and check it."""
    from gateway.cli.connecting.first_config import base_url, starter
    from gateway.config.load import read_configuration

    if config.exists():
        raise CommandError(f"{config}: this file exists and is not overwritten; give another file with --config")
    text = starter() if engine is None else asyncio.run(_ask(base_url(engine), key))
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text, encoding="utf-8")
    outcome = read_configuration(config, os.environ)
    if outcome.snapshot is None:
        print_problems(outcome.problems)
        return 1
    print(f"wrote {config}; its models: {', '.join(outcome.snapshot.models)}")
    print_note("gateway check --live asks every target, gateway serve serves the models")
    return 0


async def _ask(url: str, key: str | None) -> str:
    """Return the configuration for an engine's models. Raises ``CommandError`` if the engine does not list models."""
    from gateway.backend.http_client.client import HttpClient, json_headers
    from gateway.cli.connecting.engine import CONNECT_SECONDS, served_models
    from gateway.cli.connecting.first_config import of_engine
    from gateway.config.library import shipped_folder
    from metatemplate.files.template_models import patterns_of

    value, client = read_key(key), HttpClient()
    try:
        secrets = () if value is None else (value,)
        endpoint = client.endpoint(f"{url}/models", json_headers(value), CONNECT_SECONDS, secrets, "GET")
        served = await served_models(endpoint, url)
    except GatewayError as error:
        reason = f" ({error.reason})" if error.reason else ""
        raise CommandError(f"{url}: {error.message}{reason}; {_remedy(error)}", 1) from None
    finally:
        await client.aclose()
    if not served:
        raise CommandError(f"{url} serves no models; load a model, or leave out --engine", 1)
    templates = {path.stem: patterns_of(path) for path in sorted(shipped_folder("meta_templates").glob("*.yaml"))}
    return of_engine(url, served, key, templates)


def _remedy(error: GatewayError) -> str:
    """Return advice for the case that the engine does not list its models."""
    if error.code == "upstream_auth_failed":
        return "give the engine's key with --key env:NAME"
    if error.code in ("upstream_model_missing", "upstream_invalid_response", "upstream_error"):
        return "give the address of an OpenAI-compatible server up to /v1, or leave out --engine"
    return "start the engine, or leave out --engine"
