"""Compare our ids with those that a running engine makes of the same conversations, and write the results to a file.

For each conversation these are compared: the ids that the gateway's function makes; those of ``/tokenize`` for the
rendered text without special tokens; those that the engine makes of the messages; and, for some, those with which the
chat endpoint computes. ``python -m tests.exact_ids.engine_ids`` starts the engine itself.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from metatemplate.errors import MetaTemplateError
from tests.engines.deep_table import CHECKED
from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.corpus import Messages
from tests.exact_ids.tiny_models import CONTEXT, make_model
from tests.exact_ids.tokenizers import PUBLISHED, folder_of, tokenizers_folder
from tests.support.engines.engine import ENGINES, ROOT, Engine, engines_folder

TRANSCRIPT = Path(__file__).parent / "engine_ids.json"
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


def llama_server(folder: Path) -> Engine:
    """Return llama.cpp's server with the model in ``folder``, which is written as a GGUF file first."""
    file = folder / "model.gguf"
    python = tokenizers_folder() / ".venv" / "bin" / "python"
    program = [str(python), "-m", "tests.exact_ids.environment.to_gguf", str(folder), str(file)]
    subprocess.run(program, cwd=ROOT, check=True)

    def command(bin_folder: Path, port: int) -> list[str]:
        return [
            *(f"{bin_folder}/llama-server", "--model", str(file), "--alias", "tiny", "--ctx-size", str(CONTEXT)),
            *("--parallel", "1", "--threads", "2", "--jinja", "--host", "127.0.0.1", "--port", str(port)),
        ]

    return replace(CHECKED["llama-server"], command=command)


class Asked(ABC):
    """The engine's ids."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base.removesuffix("/v1"), timeout=120, trust_env=False)

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def of_text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text without the special tokens that the engine adds."""

    @abstractmethod
    def of_messages(self, messages: Messages) -> tuple[int, ...]: ...

    @abstractmethod
    def computes_with(self, ids: Sequence[int]) -> bool:
        """Return whether the engine computes with these ids if they are the prompt of a completion."""

    @abstractmethod
    def chats_with(self, messages: Messages, ids: Sequence[int]) -> bool | None:
        """Return whether the chat endpoint computes with these ids; None if it gives no answer."""


class AskedVllm(Asked):
    """vLLM: ``/tokenize``, and the ``prompt_token_ids`` of its answers."""

    def version(self) -> str:
        return f"vLLM {self.http.get('/version').json()['version']} (CPU)"

    def of_text(self, text: str) -> tuple[int, ...]:
        return tuple(self.post("/tokenize", model="tiny", prompt=text, add_special_tokens=False)["tokens"])

    def of_messages(self, messages: Messages) -> tuple[int, ...]:
        return tuple(self.post("/tokenize", model="tiny", messages=messages)["tokens"])

    def computes_with(self, ids: Sequence[int]) -> bool:
        answer = self.post("/v1/completions", prompt=list(ids), **SHORT)
        return bool(answer["choices"][0]["prompt_token_ids"] == list(ids))

    def chats_with(self, messages: Messages, ids: Sequence[int]) -> bool:
        return bool(self.post("/v1/chat/completions", messages=messages, **SHORT)["prompt_token_ids"] == list(ids))


class AskedLlamaServer(Asked):
    """llama.cpp: ``/tokenize``, ``/apply-template``, and two answers of the engine beside each other."""

    def version(self) -> str:
        return f"llama.cpp {self.http.get('/props').json()['build_info']}"

    def of_text(self, text: str) -> tuple[int, ...]:
        return tuple(self.post("/tokenize", content=text, add_special=False, parse_special=True)["tokens"])

    def of_messages(self, messages: Messages) -> tuple[int, ...]:
        prompt = self.post("/apply-template", messages=messages)["prompt"]
        return tuple(self.post("/tokenize", content=prompt, add_special=True, parse_special=True)["tokens"])

    def computes_with(self, ids: Sequence[int]) -> bool:
        answer = self.post("/completion", prompt=list(ids), n_predict=1, temperature=0, cache_prompt=False)
        text = self.post("/detokenize", tokens=list(ids))["content"]
        # The prompt in the answer is "cleaned": " 's" becomes "'s".
        same_text = answer["prompt"].replace(" ", "") == text.replace(" ", "")
        return bool(answer["tokens_evaluated"] == len(ids) and same_text)

    def chats_with(self, messages: Messages, ids: Sequence[int]) -> bool | None:
        answer = self.http.post("/v1/chat/completions", json={"messages": messages, **LIKELIEST})
        if answer.status_code == 500 and "does not match the expected peg-native format" in answer.text:
            return None  # the random weights write no message in the format of gptoss
        answer.raise_for_status()
        ours = self.post("/v1/completions", prompt=list(ids), **LIKELIEST)
        return chosen(answer.json()) == chosen(ours)


def chosen(answer: Any) -> list[tuple[int, float]]:
    """Return the tokens of an answer of llama.cpp with their log probabilities."""
    return [(one["id"], round(one["logprob"], 3)) for one in answer["choices"][0]["logprobs"]["content"]]


SHORT = {"model": "tiny", "max_tokens": 1, "temperature": 0, "return_token_ids": True}
LIKELIEST = {"max_tokens": 4, "temperature": 0, "logprobs": True, "n_probs": 1, "cache_prompt": False}


@dataclass(frozen=True)
class Compared:
    """An engine whose ids are compared."""

    start: Callable[[Path], Engine]
    """Returns the engine for the folder of a model."""
    asked: Callable[[str], Asked]
    transcript: Path
    samples: int = 0
    """The number of conversations that are kept with our ids."""
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tokenizer → why the engine's ids may differ, of ``REASONS``."""


def _has_marks(messages: Messages, text: str) -> bool:
    return any(unicodedata.category(character).startswith("M") for character in text)


def _is_not_composed(messages: Messages, text: str) -> bool:
    return not unicodedata.is_normalized("NFC", text)


def _ends_with_wide_space(messages: Messages, text: str) -> bool:
    return any(one["content"].strip() != one["content"].strip(ASCII_SPACES) for one in messages)


ASCII_SPACES = " \t\n\r\v\f"
REASONS: dict[str, Callable[[Messages, str], bool]] = {
    "the tokenizer composes characters (NFC), the engine does not": _is_not_composed,
    "the engine splits a text at other combining marks": _has_marks,
    "the engine's trim leaves blanks outside ASCII": _ends_with_wide_space,
}
"""Why an engine reads a conversation otherwise → whether that can be so for messages and their rendered text."""
NFC, MARKS, TRIM = REASONS
COMPARED = {
    "vllm": Compared(vllm, AskedVllm, TRANSCRIPT, samples=3),
    "llama-server": Compared(
        llama_server,
        AskedLlamaServer,
        TRANSCRIPT.with_name("llama_server_ids.json"),
        reasons={"llama3": (TRIM,), "qwen3": (NFC,), "gemma3": (TRIM,), "gptoss": (MARKS,), "tekken": (MARKS,)},
    ),
}


VERDICTS = {True: "equal", False: "different", None: "no answer"}


def compare(subject: Subject, asked: Asked, number: int, reasons: Sequence[str], kept: int) -> dict[str, Any]:
    """Return the counts, and some samples."""
    counts, samples = Counter[str](), list[dict[str, Any]]()
    for at, messages in enumerate(conversations(subject, number, SEED, hostile=False)):
        prompt = subject.render(messages)
        ours = subject.encode(prompt.segments or ())
        same: dict[str, bool | None] = {
            "the text": asked.of_text(prompt.text) == ours,
            "the messages": asked.of_messages(messages) == ours,
        }
        if at % CALLED == 0:
            same |= {"a chat call": asked.chats_with(messages, ours), "received": asked.computes_with(ours)}
        known = next((reason for reason in reasons if REASONS[reason](messages, prompt.text)), None)
        for name, equal in same.items():
            counts[f"{name}: {VERDICTS[equal] if equal is not False or known is None else known}"] += 1
            if equal is False and known is None:
                print(f"  {name}: {messages!r}"[:900])
        counts[f"BOS: {ours.count(subject.bos)}"] += 1
        if len(samples) < kept and len(ours) < 120:
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
            hostile["received as sent"] += asked.computes_with(ours)
            hostile["sent"] += 1
    return {"conversations": dict(counts), "hostile": dict(hostile)} | ({"samples": samples} if samples else {})


def main() -> int:
    """Start the engine with each tokenizer, compare, and write the transcript; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*", metavar="TOKENIZER")
    parser.add_argument("--number", type=int, default=1000, help="conversations (default: 1000)")
    parser.add_argument("--engine", choices=COMPARED, default="vllm")
    given = parser.parse_args()
    compared = COMPARED[given.engine]
    file = compared.transcript
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in given.tokenizers or PUBLISHED:
        folder = folder_of(name)
        if folder is None:
            print(f"{name}: not installed")
            continue
        with tempfile.TemporaryDirectory() as made:
            engine = compared.start(make_model(folder, Path(made) / name))
            with engine.running(engines_folder(), Path(made) / "work") as base:
                asked = compared.asked(base)
                result = compare(Subject(folder), asked, given.number, compared.reasons.get(name, ()), compared.samples)
                option = "" if given.engine == "vllm" else f"--engine {given.engine} "
                found[name] = {
                    "engine": asked.version(),
                    "date": datetime.date.today().isoformat(),
                    "command": f"python -m tests.exact_ids.engine_ids {name} {option}--number {given.number}",
                    **result,
                }
        print(f"{name}: {found[name]['conversations']} {found[name]['hostile']}", flush=True)
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any("different" in count for one in found.values() for count in one["conversations"]))


if __name__ == "__main__":
    sys.exit(main())
