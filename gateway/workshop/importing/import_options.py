"""The options of ``gateway import``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from gateway.cli.options import FILE_PATH, argument, choice, flag, option
from gateway.workshop.importer.draft import SUBSETS
from gateway.workshop.importer.kinds import SOURCE_KINDS

STDOUT = "-"


def _unique(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of ``gateway import``."""

    source: Path = argument(type=FILE_PATH)
    """a folder or a file"""
    kind: str = choice("auto", *SOURCE_KINDS)
    """the format of SOURCE; auto: recognise it by file name and content"""
    name: str | None = option("NAME", show_default="the source's")
    """the name of the new template or prompt"""
    out: str | None = option("FILE|FOLDER|-", show_default="meta_templates/ or prompts/")
    """the output: a .yaml file, a folder (with / at its end), or - for standard output"""
    force: bool = flag()
    """overwrite existing files, and remove files of an earlier import"""
    model: str | None = option("ABBR")
    """import only this model, dataset or prompter of SOURCE"""
    form: str = option(None, "--as", type=click.Choice(["jinja", "meta"]), default="jinja")
    """jinja: keep a chat template unchanged; meta: convert it to a meta template"""
    variant: str | None = option("NAME")
    """use only this one of several named chat templates"""
    without: tuple[str, ...] = option(None, multiple=True, type=click.Choice(list(SUBSETS)), callback=_unique)
    """conversations to leave out of the comparison: system messages, blanks at the ends of messages, empty messages,
    odd turns, messages to be continued; may be repeated"""
    turns: str = choice("natural", "opencompass")
    """the setting "turns" of a template that is made from an OpenCompass config"""
    python: Path | None = option("PYTHON", type=FILE_PATH, show_default="nothing is executed")
    """run SOURCE, an OpenCompass or AISBench config, with your rights, and import the values that it computes: PYTHON
    is the Python of an environment with mmengine, such as ENV/bin/python"""
    root: tuple[Path, ...] = option(
        "DIR",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        show_default="the installed opencompass and ais_bench",
    )
    """a folder from which read_base blocks of a config may read files; may be repeated"""
    marks_of: str = option("NAME", default="", show_default=False)
    """use the tokens of this model or model family in LazyLLM's table"""

    @property
    def is_folder(self) -> bool:
        """Whether the output path ``out`` is a folder."""
        return self.out is not None and (self.out.endswith(("/", os.sep)) or Path(self.out).is_dir())

    @property
    def template_name(self) -> str | None:
        """The given ``name``, or else the name of the output file without its suffix; None: neither is given."""
        if self.name is not None or self.out is None or self.out == STDOUT or self.is_folder:
            return self.name
        return Path(self.out).stem
