"""Records the prompts of ``transformers`` for the conversations: ``PYTHON record_goldens.py [--check]``.

Run by a Python that has ``transformers`` (no torch needed): ``pip install transformers jinja2``. Without ``--check``
it writes ``goldens.json``; with it, it compares what it finds with what is recorded, and exits with 1 if they differ.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
from typing import Any

import cases  # type: ignore[import-not-found]  # beside this file; the other Python has no package around it
import transformers
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer, models
from transformers.utils import chat_template_utils


class StillClock(datetime.datetime):
    """``transformers`` asks the machine for the time; a golden needs one that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> StillClock:
        return cls.fromisoformat(cases.DAY)


def outcome(tokenizer: Any, case: dict[str, Any]) -> str:
    """The prompt behind ``=``, or how it was refused."""
    try:
        text = tokenizer.apply_chat_template(
            case["messages"],
            tools=case["tools"],
            tokenize=False,
            add_generation_prompt=not case["continue_final"],
            continue_final_message=case["continue_final"],
            **case["kwargs"],
        )
    except TemplateError as error:
        # raise_exception raises the base class itself; what jinja2 finds wrong has a class of its own
        return f"refused: {error}" if type(error) is TemplateError else "error"
    except (TypeError, ValueError, KeyError, AttributeError):
        return "error"
    return f"={text}"


def recorded() -> dict[str, Any]:
    """All goldens."""
    chat_template_utils.datetime = StillClock
    found: dict[str, Any] = {"transformers": transformers.__version__}
    for name in cases.KINDS:
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
            chat_template=(cases.FOLDER / f"{name}.jinja").read_text(encoding="utf-8"),
            **cases.TOKENS,
        )
        outcomes = [outcome(tokenizer, case) for case in cases.cases(name)]
        hashes = [hashlib.sha256(one.encode()).hexdigest()[:8] for one in outcomes]
        found[name] = {"whole": outcomes[: cases.WHOLE], "hashes": " ".join(hashes)}
        refused = sum(one.startswith("refused") for one in outcomes), outcomes.count("error")
        print(f"{name}: {len(outcomes)} conversations, {refused[0]} refused, {refused[1]} errors", file=sys.stderr)
    return found


def main() -> int:
    """Record or compare."""
    found = recorded()
    if "--check" in sys.argv:
        known = json.loads(cases.GOLDENS.read_text(encoding="utf-8"))
        parted = [name for name in cases.KINDS if known[name] != found[name]]
        print(f"differs: {', '.join(parted)}" if parted else "the same as recorded")
        return 1 if parted else 0
    cases.GOLDENS.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
