"""What can a person type? ``gateway VERB``; each verb is a module here, loaded when it is used."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from gateway import __version__

VERBS = {
    "serve": "serve the configured models over HTTP",
    "check": "look through every file and run the examples inside the templates",
    "render": "show the exact prompt that a model would see",
    "diff": "show where two templates part on one conversation",
    "parity": "compare a template with its reference over a matrix of conversations",
    "import": "make a template of something in another format",
    "models": "list the configured models",
    "keys": "make a client key",
}

EPILOG = """examples:
  gateway serve                                   serve ./gateway.yaml on 127.0.0.1:8000
  gateway check && echo fine                      exit code 1 lists every problem
  gateway render demo -m "user:1+1=?"             the prompt, byte for byte
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway parity demo                             the same prompts as its own chat template?
  gateway import models/my-chat-7b                a template of a model's own chat template
  gateway VERB --help                             more of each
"""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; returns the process's exit code."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="An OpenAI-compatible gateway that shows every local model the exact prompt it was trained on.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gateway {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    arguments = sys.argv[1:] if argv is None else argv
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if verb in arguments:  # the others are named, not loaded
            module = import_module(f"gateway.cli.{verb}")
            sub.description, sub.epilog = module.__doc__, module.EXAMPLES
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # prompts are bytes, whatever the locale
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `gateway render … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its exit
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
