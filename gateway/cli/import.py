"""Make a template file from a template in another format, or prompt files from a dataset config.

SOURCE is a tokenizer folder or chat template, an OpenCompass config of models or datasets, a LazyLLM prompter, an
Ollama Modelfile or a FastChat conversation.

The source is read as text or syntax and never executed. The new template is compared with the source's own prompts over
the matrix of `gateway parity`, gets examples with exact prompts, and is checked like every template before it is
written. Settings that a template cannot contain are listed.

Exit code 0: written. 1: the source cannot be imported, or not exactly. 2: the command line is wrong, or a file exists.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from gateway.cli.importing.build import build_file
from gateway.cli.importing.output import output_paths, write_files
from gateway.cli.importing.sources import ImportOptions, read_drafts
from gateway.cli.options import print_problems
from gateway.config.schema.names import escaped
from gateway.core.errors import ConfigError, Problem
from gateway.importer.draft import SUBSETS
from gateway.importer.kinds import KINDS

EXAMPLES = r"""examples:
  gateway import ~/models/my-chat-7b                        a chat template, with the files it needs
  gateway import ~/models/my-chat-7b --as meta --out -      its turns, if they are exact
  gateway import configs/hf_my_chat.py --model my-chat-7b-hf
  gateway import configs/my_sums_gen.py --kind dataset     prompts of datasets
  gateway import Modelfile --name my-model
  gateway import conversation.py --kind fastchat --without system
  gateway import prompter.json --marks-of FAMILY --out meta_templates/rag.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway import``."""
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a folder or a file")
    parser.add_argument("--kind", choices=("auto", *KINDS), default="auto",
                        help="the source's format (default: recognised by its name and content)")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="the name of the template or prompt (default: the source's)")
    parser.add_argument("--out", metavar="FILE|FOLDER|-",
                        help="where to write (default: meta_templates/ or prompts/; -: standard output)")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite files, and remove those of an earlier import")
    parser.add_argument("--model", metavar="ABBR", help="one of several models, datasets or prompters of a source")
    parser.add_argument("--as", dest="form", choices=("jinja", "meta"), default="jinja",
                        help="a chat template as it is (default), or as turns with begin and end")  # fmt: skip
    parser.add_argument("--variant", metavar="NAME", help="one of several named chat templates, for all requests")
    parser.add_argument("--without", action="append", default=[], choices=tuple(SUBSETS),
                        help="conversations to leave out of the comparison: system messages, blanks at the ends of "
                        "messages, empty messages, odd turns, messages to be continued; may be repeated")  # fmt: skip
    parser.add_argument("--turns", choices=("natural", "opencompass"), default="natural",
                        help="how an OpenCompass template puts turns in order (default: natural)")  # fmt: skip
    parser.add_argument("--marks-of", default="", metavar="NAME",
                        help="a family of LazyLLM's table, or a model that is found there: its tokens")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Import the source and write the files."""
    args.without = tuple(dict.fromkeys(args.without))
    options = ImportOptions(**{field.name: getattr(args, field.name) for field in fields(ImportOptions)})
    try:
        drafts = read_drafts(options)
        paths = output_paths(options, drafts)
        files = [build_file(draft) for draft in drafts]
        for file, path in zip(files, paths, strict=True):
            print(*file.report, sep="\n", file=sys.stderr)
            if path is None:
                sys.stdout.write(file.text)
                continue
            for removed in write_files(file, path):
                print(f"removed {escaped(str(removed))}, a file of an earlier import", file=sys.stderr)
            print(f"wrote {path}", file=sys.stderr)
    except ConfigError as error:
        print_problems(error.problems)
        return 1
    except RecursionError:  # a foreign file can nest to any depth
        print_problems([Problem(str(options.source), 0, "", "the file is nested too deeply; simplify it")])
        return 1
    return 0
