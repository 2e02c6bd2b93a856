"""Compare our ids with those that a running vLLM makes of the same conversations, and write the results to a file.

For each conversation these must be equal: the ids that the gateway's function makes; those of ``/tokenize`` for the
rendered text without special tokens; those of ``/tokenize`` for the messages; and, for some, the ``prompt_token_ids``
that ``/v1/chat/completions`` has computed with. ``python -m tests.exact_ids.engine_ids`` starts the engine itself.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from metatemplate.errors import MetaTemplateError
from tests.exact_ids.compare import Subject, conversations, first_difference
from tests.exact_ids.corpus import Messages
from tests.exact_ids.tiny_models import CONTEXT, make_model
from tests.exact_ids.tokenizers import PUBLISHED, folder_of
from tests.support.engines.engine import ENGINES, Engine, engines_folder

TRANSCRIPT = Path(__file__).parent / "engine_ids.json"
SAMPLES = 3
"""The number of conversations that are kept with their ids."""
SEED = 1
HOSTILE = 300
"""The number of hostile texts for which both sides are compared."""
CALLED = 50
"""Every so many conversations are sent to the chat endpoint, too."""


def vllm(folder: Path) -> Engine:
    """Return vLLM with the model in ``folder``."""

    def command(bin_folder: Path, port: int) -> list[str]:
        return [
            *(f"{bin_folder}/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
            *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
            *("--max-model-len", str(CONTEXT), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8"),
        ]

    return replace(ENGINES["vllm"], command=command)


class Asked:
    """The engine's ids."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base.removesuffix("/v1"), timeout=120, trust_env=False)

    def version(self) -> str:
        return str(self.http.get("/version").json()["version"])

    def _tokens(self, **body: Any) -> tuple[int, ...]:
        answer = self.http.post("/tokenize", json={"model": "tiny", **body})
        answer.raise_for_status()
        return tuple(answer.json()["tokens"])

    def of_text(self, text: str) -> tuple[int, ...]:
        return self._tokens(prompt=text, add_special_tokens=False)

    def of_messages(self, messages: Messages) -> tuple[int, ...]:
        return self._tokens(messages=messages)

    def of_call(self, messages: Messages) -> tuple[int, ...]:
        body = {"model": "tiny", "messages": messages, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        answer = self.http.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        return tuple(answer.json()["prompt_token_ids"])

    def received(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the prompt with which the engine computes when it gets these ids."""
        body = {"model": "tiny", "prompt": list(ids), "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        answer = self.http.post("/v1/completions", json=body)
        answer.raise_for_status()
        return tuple(answer.json()["choices"][0]["prompt_token_ids"])


def compare(subject: Subject, asked: Asked, number: int) -> dict[str, Any]:
    """Return the counts, and some samples."""
    counts, samples = Counter[str](), list[dict[str, Any]]()
    for at, messages in enumerate(conversations(subject, number, SEED, hostile=False)):
        prompt = subject.render(messages)
        ours = subject.encode(prompt.segments or ())
        sides = {"the text": asked.of_text(prompt.text), "the messages": asked.of_messages(messages)}
        if at % CALLED == 0:
            sides |= {"a chat call": asked.of_call(messages), "received": asked.received(ours)}
        for name, ids in sides.items():
            same = ids == ours
            counts[f"{name}: {'equal' if same else 'different'}"] += 1
            if not same and counts[f"{name}: different"] <= 3:
                print(f"  {name}: {first_difference(ours, ids, subject)} {messages!r}"[:900])
        counts[f"BOS: {ours.count(subject.bos)}"] += 1
        if len(samples) < SAMPLES and len(ours) < 120:
            samples.append({"messages": messages, "ids": list(ours)})
    hostile = Counter[str]()
    for at, messages in enumerate(conversations(subject, HOSTILE, SEED, hostile=True)):
        try:
            prompt = subject.render(messages)
            ours = subject.encode(prompt.segments or ())
        except MetaTemplateError:
            hostile["refused"] += 1
            continue
        whole = asked.of_text(prompt.text)
        hostile["the engine reads the whole text as the library does"] += whole == subject.whole(prompt.text)
        hostile["other ids than the engine's" if whole != ours else "no token of a client in either"] += 1
        if at % 10 == 0:
            hostile["received as sent"] += asked.received(ours) == ours
            hostile["sent"] += 1
    return {"conversations": dict(counts), "hostile": dict(hostile), "samples": samples}


def main() -> int:
    """Start the engine with each tokenizer, compare, and write the transcript; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*", metavar="TOKENIZER")
    parser.add_argument("--number", type=int, default=1000, help="conversations (default: 1000)")
    parser.add_argument("--into", type=Path, default=TRANSCRIPT)
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(given.into.read_text()) if given.into.exists() else {}
    for name in given.tokenizers or PUBLISHED:
        folder = folder_of(name)
        if folder is None:
            print(f"{name}: not installed")
            continue
        with tempfile.TemporaryDirectory() as made:
            engine = vllm(make_model(folder, Path(made) / name))
            with engine.running(engines_folder(), Path(made) / "work") as base:
                asked = Asked(base)
                result = compare(Subject(folder), asked, given.number)
                found[name] = {
                    "engine": f"vLLM {asked.version()} (CPU)",
                    "date": datetime.date.today().isoformat(),
                    "command": f"python -m tests.exact_ids.engine_ids {name} --number {given.number}",
                    **result,
                }
        print(f"{name}: {found[name]['conversations']} {found[name]['hostile']}", flush=True)
        given.into.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any("different" in count for one in found.values() for count in one["conversations"]))


if __name__ == "__main__":
    sys.exit(main())
