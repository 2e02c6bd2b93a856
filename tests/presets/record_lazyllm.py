"""Record what the real package makes of the conversations in ``lazyllm-talks.json``: ``… ORACLE ENVIRONMENT``.

ORACLE holds ``oracle.py``; ENVIRONMENT is what its ``setup.sh`` made. Each family of the package's token table is asked
for each conversation; ``lazyllm.jsonl`` gets the answers, and is what ``test_lazyllm.py`` compares the presets with.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from metatemplate.prompters.tokens import family, family_names

HERE = Path(__file__).resolve().parent
TALKS: dict[str, dict[str, Any]] = json.loads((HERE / "lazyllm-talks.json").read_text(encoding="utf-8"))


def case_of(name: str, talk: dict[str, Any]) -> dict[str, Any]:
    """A conversation in the package's words: what stands first as instruction, the last as input."""
    messages = copy.deepcopy(talk["messages"])
    system = messages.pop(0)["content"] if messages[0]["role"] == "system" else None
    at = len(messages) - 1
    while messages[at]["role"] == "tool" and messages[at - 1]["role"] == "tool":
        at -= 1
    last = messages[at:]
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    given = last[0]["content"] if last[0]["role"] == "user" else {"input": last}
    return {
        "kind": "prompter",
        "cls": "ChatPrompter",
        "init": {"instruction": system} if system else {},
        "model_configs": family(name),
        "call": {"input": given, "history": messages[:at], "tools": talk.get("tools")},
    }


def rows() -> Iterator[dict[str, Any]]:
    """Family and conversation; tools only where the family has tokens for them."""
    for name in family_names():
        for conversation, talk in TALKS.items():
            if "tools" not in talk or family(name).get("tool_start_token"):
                yield {"preset": f"lazyllm-{name}", "conversation": conversation, "case": case_of(name, talk)}


def main() -> None:
    oracle, environment = Path(sys.argv[1]), Path(sys.argv[2])
    asked = list(rows())
    given = "".join(json.dumps(row["case"]) + "\n" for row in asked)
    command = [str(environment / "bin" / "python"), str(oracle / "oracle.py")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8", check=True)
    with (HERE / "lazyllm.jsonl").open("w", encoding="utf-8") as file:
        for row, line in zip(asked, done.stdout.splitlines(), strict=True):
            del row["case"]
            file.write(json.dumps({**row, "expected": json.loads(line)["result"]}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
