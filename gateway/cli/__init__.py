"""The command line: ``gateway VERB``. Each verb is a module, imported when it is used.

``check`` ``diff`` ``import`` ``keys`` ``models`` ``parity`` ``render`` ``run`` ``serve``  the verbs
``options``             arguments, errors and notes that several verbs share
``rendering``           the models and prompts of ``render``, ``diff`` and ``parity``
``terminal``            tables, colours, escaped text and differences between texts
``chat_folders``        the chat template in a model's folder, for ``parity`` and ``import``
``comparing/``          the steps of ``parity``
``importing/``          the steps of ``import``
``running/``            the steps of ``run``
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from gateway.cli.options import CommandError, print_problems
from gateway.core.errors import CONFIG_FAILED, ConfigError, GatewayError
from gateway.core.version import VERSION

VERBS = {
    "serve": "serve the configured models over HTTP",
    "check": "read every file, and run the examples in the templates",
    "render": "show the exact prompt that a model receives",
    "diff": "show where the prompts of two templates differ",
    "parity": "compare a template with a reference over a matrix of conversations",
    "run": "send every row of a file to a model, and go on after an interruption",
    "import": "convert a template from another format",
    "models": "list the configured models",
    "keys": "make a client key",
}

EPILOG = """examples:
  gateway serve                                   serve ./gateway.yaml on 127.0.0.1:8000
  gateway check && echo fine                      exit code 1 if there are problems
  gateway render demo -m "user:1+1=?"             the prompt, byte for byte
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway parity demo                             compare with the model's own chat template
  gateway import models/my-chat-7b                convert the model's own chat template
  gateway run questions.jsonl --model demo --out answers.jsonl
  gateway VERB --help                             options and examples of a verb
"""


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="An OpenAI-compatible gateway that sends every local model the exact prompt it was trained on.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gateway {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    arguments = sys.argv[1:] if argv is None else argv
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if verb in arguments:  # the modules of the other verbs are not imported
            module = import_module(f"gateway.cli.{verb}")
            sub.description, sub.epilog = module.__doc__, module.EXAMPLES
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # prompts are UTF-8 in every locale
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except CommandError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except ConfigError as error:
        print_problems(error.problems)
        return CONFIG_FAILED
    except GatewayError as error:
        where = f"{error.param}: " if error.param and error.param not in error.message else ""
        print(f"{error.code}: {where}{error.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `gateway render … | head`; without the dup2, Python reports the pipe again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
