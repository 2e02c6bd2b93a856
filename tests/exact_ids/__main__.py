"""The command line: ``python -m tests.exact_ids``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.exact_ids.compare import Subject, compare_hostile, compare_plain
from tests.exact_ids.tokenizers import INSTALL, PUBLISHED, folder_of

EXAMPLES = f"""\
examples:
  {INSTALL}                                 # the published tokenizers, once
  python -m tests.exact_ids                                    # 1 000 conversations and 25 000 hostile texts each
  python -m tests.exact_ids qwen3 --number 100 --hostile 500
"""


def main() -> int:
    """Print the counts of each tokenizer; 1 if there is a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizers", nargs="*", metavar="TOKENIZER", help=f"default: demo {' '.join(PUBLISHED)}")
    parser.add_argument("--number", type=int, default=1000, help="plain conversations (default: 1000)")
    parser.add_argument("--hostile", type=int, default=25000, help="hostile texts (default: 25000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = 0
    for name in given.tokenizers or ("demo", *PUBLISHED):
        folder = folder_of(name)
        if folder is None:
            print(f"{name}: not installed; run {INSTALL}")
            continue
        begun = time.monotonic()
        subject = Subject(folder)
        for compare, number in ((compare_plain, given.number), (compare_hostile, given.hostile)):
            tally = compare(subject, number, given.seed, progress(name, number))
            wrong += tally.wrong
            print(f"{name}: {', '.join(f'{count} {what}' for what, count in sorted(tally.counts.items()))}")
            for fault in tally.faults:
                print(f"  {fault[:1500]}")
        print(f"{name}: {len(subject.control)} control tokens, {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if wrong else 0


def progress(name: str, number: int) -> Callable[[int], None]:
    """Return a function that shows how many are done, on a terminal or every 1 000."""
    shown = -1

    def show(done: int) -> None:
        nonlocal shown
        if done // 1000 > shown:
            shown = done // 1000
            print(f"{name}: {done} of {number}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr)

    return show


if __name__ == "__main__":
    sys.exit(main())
