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

from gateway.cli.options import print_note, print_problems, takes, verb
from gateway.core.errors import ConfigError, Problem
from gateway.workshop.importer.draft import Draft
from gateway.workshop.importer.kinds import SOURCE_KINDS
from gateway.workshop.importer.python.values import RESOLVED
from gateway.workshop.importing.build import build_file
from gateway.workshop.importing.import_options import ImportOptions
from gateway.workshop.importing.output import output_paths, write_files
from gateway.workshop.importing.sources import kind_hint, read_drafts
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
@takes(ImportOptions)
def command(chosen: ImportOptions) -> int:
    """Import the source and write the files."""
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
    print_note(
        f"{len(drafts)} imported, {len(not_read)} found and not read; read the rest from the resolved config "
        f"({RESOLVED}), or choose one with --model"
    )
    return 1
