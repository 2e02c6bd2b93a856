"""Writes the text of a first ``gateway.yaml``, for an engine's models or as a starter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from gateway.cli.connecting.engine import ServedModel
from gateway.config.schema.kinds import MODEL_NAME
from metatemplate.files.template_models import made_for, named_in

HEADER = """\
# The models of this gateway. {source}
# gateway check            finds mistakes, with their lines
# gateway check --live     asks every target
# gateway serve            serves the models at http://127.0.0.1:8000/v1
# All settings: gateway docs configuration
models:
"""
STARTER = """\
  my-model:                             # the name that clients write in "model"
    template: chat                      # messages are sent unchanged; the engine writes the prompt
    targets:
      - {speaks: chat, url: "http://127.0.0.1:8101/v1"}

  # An engine that receives the exact prompt, written with a template of `gateway templates`:
  # my-sft-7b:
  #   template: NAME
  #   policy: eval
  #   targets:
  #     - {speaks: completions, url: "http://127.0.0.1:8101/v1", model: my-sft-7b, engine: vllm}
"""
READY = """
  # The same model with the exact prompt of {template}, which is for models of this name. What it leaves out of the
  # model's own chat template stands in its file: gateway templates {template}. To use it, remove "# ":
  # {name}:
  #   template: {template}
  #   targets:
  #     - {{speaks: completions, {target}}}
"""
"""A model with an included template, in comments."""
ENGINE_OF_OWNER = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
"""The field ``owned_by`` of a served model → the setting ``engine``. Other servers write other values."""


def starter() -> str:
    """Return a configuration to fill in. ``gateway check`` finds no problem in it."""
    return HEADER.format(source="Change the address and the names.") + STARTER


def of_engine(url: str, served: Sequence[ServedModel], key: str | None, templates: Mapping[str, Sequence[str]]) -> str:
    """Return a configuration with the models of an engine. ``key``: the reference to its key, such as ``env:NAME``.

    The engine writes the prompts, because its list of models does not name the template that a model was trained on.
    ``templates``: the name of each template → its patterns of model names. A template with a pattern for the model is
    used by a second model, in comments. If there is none, a comment lists the templates without patterns whose name is
    part of the model's name.
    """
    names: dict[str, ServedModel] = {}
    for model in served:
        names.setdefault(_name(model.name, names), model)
    entries = [_entry(name, model, url, key, templates) for name, model in names.items()]
    return HEADER.format(source=f"Made from the models that {url} serves.") + "\n".join(entries)


def base_url(url: str) -> str:
    """Return an engine's address. ``/v1`` is added if the address has no path."""
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/v1")


def _name(served: str, taken: dict[str, ServedModel]) -> str:
    """Return a new name for a served model: the last part of the served name, such as ``b`` for ``a/b``."""
    short = re.sub(r"[^!-~]|/", "-", served.rstrip("/").rpartition("/")[2])[:100]
    name = short if MODEL_NAME.fullmatch(short) else "model"
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def _entry(name: str, model: ServedModel, url: str, key: str | None, templates: Mapping[str, Sequence[str]]) -> str:
    settings = {"url": url, "model": model.name}
    if engine := ENGINE_OF_OWNER.get(model.owner.lower()):
        settings["engine"] = engine
    if key is not None:
        settings["key"] = key
    target = ", ".join([f"{setting}: {json.dumps(value)}" for setting, value in settings.items()])
    made = made_for(model.name, templates)
    named = [] if made else named_in(model.name, [one for one, patterns in templates.items() if not patterns])
    choices = f" The model's name suggests {' or '.join(named)}." if named else ""
    ready = "".join([READY.format(template=one, name=json.dumps(f"{name}-{one}"), target=target) for one in made])
    return f"""\
  {json.dumps(name)}:
    # The engine writes the prompt, with the chat template that it was started with.
    # To send the exact prompt yourself, write speaks: completions, and the template that the model was trained on.
    # gateway templates lists all templates, gateway import FOLDER converts the model's own.{choices}
    template: chat
    targets:
      - {{speaks: chat, {target}}}
{ready}"""
