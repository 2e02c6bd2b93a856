"""Functions with which shells complete the names of models, templates and dataset prompts.

They read the configuration that ``--config`` names, else ``./gateway.yaml``. A file with problems gives no names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click


def complete_model(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the configured models whose name begins with ``incomplete``."""
    return _beginning(_models(context), incomplete)


def complete_template(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the templates whose name begins with ``incomplete``. A path is completed as a file."""
    return _beginning(_templates(), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_model_or_template(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models and templates whose name begins with ``incomplete``. A path is completed as a file."""
    names = [*_models(context), *_templates()]
    return _beginning(names, incomplete) or [CompletionItem(incomplete, type="file")]


def complete_prompt(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the dataset prompts whose name begins with ``incomplete``."""
    folder = _config(context).parent / "prompts"
    return _beginning([path.stem for path in folder.glob("*.yaml")], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


def _config(context: click.Context) -> Path:
    return Path(context.params.get("config") or "gateway.yaml")


def _models(context: click.Context) -> list[str]:
    from metatemplate.files import yaml

    path = _config(context)
    value = yaml.parse(path.read_bytes(), path.name).value if path.is_file() else None
    models = value.get("models") if isinstance(value, dict) else None
    return [str(name) for name in models] if isinstance(models, dict) else []


def _templates() -> list[str]:
    from gateway.config.library import template_files
    from metatemplate.files.template_file import BUILT_IN

    return [BUILT_IN.name, *[path.stem for path in template_files(Path.cwd())]]
