"""Make a template file from a template in another format, or prompt files from a dataset config.

SOURCE is a tokenizer folder or chat template, an OpenCompass config of models or datasets, a LazyLLM prompter, or an
Ollama Modelfile.

With --python, SOURCE is a program that is run with your rights: use it only for a config that you trust. Without it,
the source is parsed and never executed.

The new template's prompts are compared with the source's own prompts, for all conversations of gateway parity.
Examples with exact prompts are added, and the template is checked before it is written. Settings of the source that a
template cannot contain are listed.

Exit code 0: the files are written. 1: the source cannot be imported exactly, or a part of it was found and not read;
the other parts are written. 2: the command line is wrong, or an output file exists.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import FILE_PATH, print_note, print_problems, verb
from gateway.core.errors import ConfigError, Problem
from gateway.workshop.importer.draft import SUBSETS, Draft
from gateway.workshop.importer.kinds import SOURCE_KINDS
from gateway.workshop.importer.python.values import RESOLVED
from gateway.workshop.importing.build import build_file
from gateway.workshop.importing.output import output_paths, write_files
from gateway.workshop.importing.sources import ImportOptions, kind_hint, read_drafts
from metatemplate.values.words import printable

EXAMPLES = r"""Examples:
  gateway import ~/models/my-chat-7b                        a chat template, with the files it needs
  gateway import ~/models/my-chat-7b --as meta --out -      a meta template, if it is exact
  gateway import configs/hf_my_chat.py --model my-chat-7b-hf
  gateway import configs/my_sums_gen.py --kind dataset     prompts of datasets
  gateway import configs/bbh_gen.py --python ENV/bin/python   run the config there
  gateway import Modelfile --name my-model --without system
  gateway import prompter.json --marks-of FAMILY --out meta_templates/rag.yaml

Formats of SOURCE (--kind):
"""
FORMATS_HELP = "".join([f"  {kind:<12} {description}\n" for kind, description in SOURCE_KINDS.items()])


@verb(__doc__, EXAMPLES + FORMATS_HELP)
@click.argument("source", type=FILE_PATH, help="a folder or a file")
@click.option("--kind", type=click.Choice(["auto", *SOURCE_KINDS]), default="auto",
              help="the format of SOURCE; auto: recognise it by file name and content")  # fmt: skip
@click.option("--name", metavar="NAME", show_default="the source's", help="the name of the new template or prompt")
@click.option("--out", metavar="FILE|FOLDER|-", show_default="meta_templates/ or prompts/",
              help="the output file or folder; -: standard output")  # fmt: skip
@click.option("--force", is_flag=True, help="overwrite existing files, and remove files of an earlier import")
@click.option("--model", metavar="ABBR", help="import only this model, dataset or prompter of SOURCE")
@click.option("--as", "form", type=click.Choice(["jinja", "meta"]), default="jinja",
              help="jinja: keep a chat template unchanged; meta: convert it to a meta template")  # fmt: skip
@click.option("--variant", metavar="NAME", help="use only this one of several named chat templates")
@click.option("--without", multiple=True, type=click.Choice(list(SUBSETS)),
              help="conversations to leave out of the comparison: system messages, blanks at the ends of "
              "messages, empty messages, odd turns, messages to be continued; may be repeated")  # fmt: skip
@click.option("--turns", type=click.Choice(["natural", "opencompass"]), default="natural",
              help='the setting "turns" of a template that is made from an OpenCompass config')  # fmt: skip
@click.option("--python", type=FILE_PATH, metavar="PYTHON", show_default="nothing is executed",
              help="run SOURCE, an OpenCompass or AISBench config, with your rights, and import the values that it "
              "computes: PYTHON is the Python of an environment with mmengine, such as ENV/bin/python")  # fmt: skip
@click.option("--root", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
              metavar="DIR", show_default="the installed opencompass and ais_bench",
              help="a folder from which read_base blocks of a config may read files; may be repeated")  # fmt: skip
@click.option("--marks-of", default="", metavar="NAME", show_default=False,
              help="use the tokens of this model or model family in LazyLLM's table")  # fmt: skip
def command(**options: Any) -> int:
    """Import the source and write the files."""
    options["without"] = tuple(dict.fromkeys(options["without"]))
    chosen = ImportOptions(**options)
    try:
        drafts = read_drafts(chosen)
        paths = output_paths(chosen, drafts)
        files = [build_file(draft) for draft in drafts]
        for file, path in zip(files, paths, strict=True):
            print(*file.report, sep="\n", file=sys.stderr)
            if path is None:
                sys.stdout.write(file.text)
                continue
            for removed in write_files(file, path):
                print(f"removed {printable(str(removed))}, a file of an earlier import", file=sys.stderr)
            print(f"wrote {path}", file=sys.stderr)
        return _report_not_read(chosen, drafts)
    except ConfigError as error:
        print_problems(error.problems)
        if hint := kind_hint(chosen):
            print_note(hint)
        return 1
    except RecursionError:  # a foreign file can nest to any depth
        print_problems([Problem(str(chosen.source), 0, "", "the file is nested too deeply; simplify it")])
        return 1


def _report_not_read(chosen: ImportOptions, drafts: list[Draft]) -> int:
    """Print what was found in the source and not read, and return the exit code."""
    not_read = dict.fromkeys([line for draft in drafts for line in draft.not_read])
    if not not_read or chosen.model is not None:
        return 0
    print_problems([Problem(str(chosen.source), 0, "", f"not imported: {line}") for line in not_read])
    print_note(f"{len(drafts)} imported, {len(not_read)} found and not read; read the rest from the resolved config "
               f"({RESOLVED}), or choose one with --model")  # fmt: skip
    return 1
