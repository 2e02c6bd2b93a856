"""Send conversations through a gateway to a running vLLM as text and as ids, and compare what the engine received.

``python -m tests.exact_ids.wire`` starts the engine and the gateway, and adds the counts to ``engine_ids.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from metatemplate.errors import MetaTemplateError
from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.corpus import Messages
from tests.exact_ids.engine_ids import SEED, TRANSCRIPT, vllm
from tests.exact_ids.tiny_models import make_model
from tests.exact_ids.tokenizers import DEMO, FILES, folder_of
from tests.support.engines.engine import engines_folder
from tests.support.serving import Gateway, gateway

NUMBER = 100
ANSWER = 8
"""The number of tokens that are asked for."""
DEMO_CONTEXT = 512


def files(folder: Path) -> Mapping[str, str | Path]:
    """Return the files of the template ``published``: the chat template of a tokenizer's folder."""
    kept = {f"meta_templates/published/{name}": folder / name for name in FILES if name != "tokenizer.json"}
    return {"meta_templates/published.yaml": "kind: jinja\nfile: published/chat_template.jinja\n", **kept}


def configuration(tokenizer: Path, target: str) -> str:
    """Return a gateway.yaml with the models ``text`` and ``ids`` on one target, which is given without braces."""
    models = "".join(
        f"  {form}: {{template: published, policy: default, tokenizer: {tokenizer}, "
        f"targets: [{{{target}, prompt: {form}}}]}}\n"
        for form in ("text", "ids")
    )
    return f"models:\n{models}"


def called(served: Gateway, model: str, messages: Messages) -> dict[str, Any]:
    """Return the answer to a conversation: its status, its text, and the prompt that the engine computed with."""
    body = {"model": model, "messages": messages, "max_tokens": ANSWER, "temperature": 0, "return_token_ids": True}
    answer = served.http.post("/v1/chat/completions", json=body)
    found = answer.json()
    if answer.status_code != 200:
        return {"status": answer.status_code, "error": found}
    text = found["choices"][0]["message"]["content"]
    return {"status": 200, "text": text, "prompt": tuple(found.get("prompt_token_ids") or ())}


def compare(subject: Subject, served: Gateway, number: int) -> dict[str, dict[str, int]]:
    """Send plain and hostile conversations; the counts."""
    plain, hostile = Counter[str](), Counter[str]()
    for messages in conversations(subject, number, SEED + 1, hostile=False):
        sent = subject.encode(subject.render(messages).segments or ())
        if subject.folder == DEMO and len(sent) > DEMO_CONTEXT - ANSWER:
            plain["too long"] += 1
            continue
        as_ids, as_text = called(served, "ids", messages), called(served, "text", messages)
        plain["received as sent" if as_ids.get("prompt") == sent else "received otherwise"] += 1
        plain["the text's ids are the same" if as_text == as_ids else "the text's prompt or answer differs"] += 1
        if as_ids != as_text or as_ids.get("prompt") != sent:
            print(f"{messages!r}\n  ids {as_ids}\n  text {as_text}\n  ours {sent}"[:2000])
    for messages in islice(conversations(subject, 10**6, SEED + 1, hostile=True), number):
        ours: tuple[int, ...] | None = None
        with suppress(MetaTemplateError):
            ours = subject.encode(subject.render(messages).segments or ())
        answer = called(served, "ids", messages)
        if answer["status"] != 200:
            hostile["refused by the gateway" if ours is None else f"status {answer['status']}"] += 1
            if ours is not None:
                print(f"{messages!r} {answer}"[:1000])
        else:
            hostile["received as sent" if answer["prompt"] == ours else "received otherwise"] += 1
    return {"plain": dict(plain), "hostile": dict(hostile)}


def main() -> int:
    """Compare the tokenizers that the command line names; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--engine", metavar="URL", help="a vLLM that runs with this tokenizer's model, named as it is")
    given = parser.parse_args()
    wrong = 0
    for name in given.tokenizers:
        folder = folder_of(name)
        assert folder is not None, f"{name} is not installed"
        with tempfile.TemporaryDirectory() as made:
            place, subject = Path(made), Subject(folder)
            if given.engine:
                served = "tiny" if name == "demo" else name
                found = through(subject, folder, given.engine, served, place, given.number)
            else:
                with vllm(make_model(folder, place / name)).running(engines_folder(), place / "work") as base:
                    found = through(subject, folder, base, "tiny", place, given.number)
        print(f"{name}: {found}", flush=True)
        wrong += sum(
            count for part in found.values() for what, count in part.items() if "otherwise" in what or "differs" in what
        )
        table = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))
        table.setdefault(name, {})["wire"] = found
        TRANSCRIPT.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(wrong > 0)


def through(
    subject: Subject, folder: Path, base: str, model: str, place: Path, number: int
) -> dict[str, dict[str, int]]:
    """Serve a gateway in front of an engine, and compare."""
    target = f'speaks: completions, url: "{base}", model: {model}, engine: vllm'
    (place / "gateway").mkdir()
    with gateway(place / "gateway", configuration(folder, target), files=files(folder)) as served:
        return compare(subject, served, number)


if __name__ == "__main__":
    sys.exit(main())
