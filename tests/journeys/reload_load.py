"""Reload a gateway again and again while clients call it (T8 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.journeys.process import Process
from tests.support.serving import WAIT_SECONDS, eventually

MODEL = "models: {{m: {{template: chat, targets: [{{speaks: scripted, script: {script}.yaml}}]}}}}\n"
FILES = {
    "gateway.yaml": MODEL.format(script="even"),
    "even.yaml": "[even, {finish: stop}]\n",
    "odd.yaml": "[odd, {finish: stop}]\n",
}
BROKEN_EVERY = 10
"""Before each tenth reload an edit with a mistake has to be refused."""
WARM_UP = 50
"""Reloads before memory is measured."""


@dataclass(slots=True)
class Outcome:
    """What the clients saw, and the memory of the gateway in bytes."""

    answers: Counter[str] = field(default_factory=Counter)
    """Answer, or error → number of calls."""
    refused: int = 0
    """Edits with a mistake that were refused."""
    memory_before: int = 0
    memory_after: int = 0

    @property
    def failed(self) -> int:
        """The number of calls without one of the two answers."""
        return sum(number for answer, number in self.answers.items() if answer not in ("even", "odd"))


def reload_under_load(process: Process, reloads: int, clients: int = 2) -> Outcome:
    """Reload ``reloads`` times, alternating between two configurations, while ``clients`` threads call the model."""
    outcome, stop, lock = Outcome(), threading.Event(), threading.Lock()

    def call() -> None:
        answers: Counter[str] = Counter()
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{process.port}", timeout=60, trust_env=False, verify=False
        ) as http:
            while not stop.is_set():
                try:
                    answer = http.post("/v1/chat/completions", json=body).json()
                    answers[answer["choices"][0]["message"]["content"] if "choices" in answer else str(answer)] += 1
                except httpx.TransportError as error:
                    answers[repr(error)] += 1
        with lock:
            outcome.answers += answers

    threads = [threading.Thread(target=call) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, reloads + 1):
            if not number % BROKEN_EVERY:
                errors = process.reloads("error")
                process.write("gateway.yaml", f"models: {number}\n")
                process.signal(signal.SIGHUP)
                assert eventually(lambda errors=errors: process.reloads("error") > errors), process.log[-2000:]
                outcome.refused += 1
            answer = ("even", "odd")[number % 2]
            process.write("gateway.yaml", MODEL.format(script=answer))
            process.signal(signal.SIGHUP)
            assert eventually(lambda answer=answer: process.call_model("m") == answer), process.log[-2000:]
            if number == min(WARM_UP, reloads):
                outcome.memory_before = memory(process)
        outcome.memory_after = memory(process)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)
    return outcome


def memory(process: Process) -> int:
    """Resident bytes of the process; 0 on systems without ``/proc``."""
    path = Path(f"/proc/{process.process.pid}/statm")
    return int(path.read_text().split()[1]) * 4096 if path.exists() else 0
