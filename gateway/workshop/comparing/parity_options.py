"""The options of ``gateway parity``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gateway.cli.call_options import ModelOptions
from gateway.cli.options import FILE_PATH, flag, option

ENGINE_NAMES = ("transformers", "llama.cpp", "minijinja")
"""The other engines that render chat templates. They are made in ``gateway/workshop/parity/engines.py``."""


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise click.BadParameter('expected a JSON object, such as {"enable_thinking": false}')
    return value


@dataclass(frozen=True, kw_only=True)
class ParityOptions(ModelOptions):
    """The options of ``gateway parity``. Either ``model`` or ``template`` is given."""

    reference: str | None = option("FILE|FOLDER|NAME|URL", show_default="the model's tokenizer folder")
    """a chat_template.jinja, a tokenizer_config.json, a folder that contains such a file, another template, a
    configured model, or the address of a vLLM or llama.cpp server"""
    tokenizer: Path | None = option("FILE|FOLDER", type=FILE_PATH, show_default="the model's, else the reference's")
    """a tokenizer.json, with which the tokens are compared"""
    engine: str | None = option(
        None, type=click.Choice([*ENGINE_NAMES, "own"]), show_default="transformers if it is installed"
    )
    """the engine that renders the reference's chat template; own: the gateway's renderer"""
    kwargs: Mapping[str, Any] | None = option("JSON", type=_json_object)
    """variables for the reference's chat template, as a JSON object"""
    variant: str | None = option(
        "NAME", show_default="the name that the compared template uses, else the choice of transformers"
    )
    """one of the reference's named chat templates"""
    cases: tuple[str, ...] = option("NAME", "--case", multiple=True)
    """compare only this case; may be repeated"""
    show: int = option("N", type=click.IntRange(min=0), default=3)
    """show the first N differences in full"""
    show_all: bool = flag("--all")
    """show all differences in full"""
    as_json: bool = flag("--json")
    """print JSON instead of tables: the whole report"""
    no_color: bool = flag()
    """print no colours on a terminal (as with NO_COLOR=1)"""
