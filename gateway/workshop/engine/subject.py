"""The engine that is checked: its target, its model, its probes, and the answers that several probes share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gateway.backend.engines import COMPLETIONS_PARAMS, EngineCapabilities, declared_capabilities
from gateway.calls.route import Route
from gateway.cli.connecting.engine import ServedModel
from gateway.cli.connecting.live_check import LLAMACPP_OWNERS
from gateway.config.snapshot import Engine
from gateway.core.errors import GatewayError, UpstreamModelMissing
from gateway.core.exchange import Exchange
from gateway.stream.prompt_logprobs import PROMPT_LOGPROBS
from gateway.workshop.engine.client import EngineClient
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Completion, Delta

TEXT = "Continue: a b c d e f g"
"""The prompt, or the message, of all answers that the probes of parameters compare."""
ANSWER_TOKENS = 16
"""The maximum number of tokens of one answer."""
HOT = 2.0
"""The highest temperature that OpenAI's API accepts."""
SEEDS = (1, 2, 3)
REPEATABLE = "temperature 0"
"""The name of the probe whose failure makes comparisons of answers useless."""
ASKED = {"return_token_ids": True, PROMPT_LOGPROBS: 0}
OWNERS: Mapping[str, Engine] = {**LLAMACPP_OWNERS, "vllm": "vllm", "sglang": "sglang"}
"""The field ``owned_by`` of a served model → the setting ``engine``."""

Params = Mapping[str, Any]
"""The fields of a request that are not fields of ``Exchange``."""
ProbeVerdict = Literal["ok", "differs", "could not check"]


class EngineDiffers(Exception):
    """Raised by a probe if the engine does something else than it should. Arguments: the evidence, further advice."""


class NotChecked(Exception):
    """Raised by a probe that cannot tell. The message is the reason."""


def expect(fact: object, evidence: str, advice: str = "") -> None:
    """Raise ``EngineDiffers`` unless the fact is true. ``advice`` stands before that of the probe."""
    if not fact:
        raise EngineDiffers(evidence, advice)


def require(fact: object, reason: str) -> None:
    """Raise ``NotChecked`` unless the fact is true."""
    if not fact:
        raise NotChecked(reason)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An answer to a text."""

    completion: Completion
    text: str
    """The text of the first choice, with its reasoning."""
    reason: str
    """The finish reason of the first choice."""
    counts: tuple[int, int]
    """The numbers of tokens of the prompt and of the answer; 0 if the answer has no usage."""
    pieces: Sequence[str]
    """The texts of the first choice, as they arrived."""


@dataclass(slots=True)
class Subject:
    """What is checked, with the answers so far."""

    client: EngineClient
    route: Route | None
    """The model's route without a backend; None if only an address is known."""
    tokens: Tokenizer | None
    """The model's tokenizer, if the gateway has it."""
    chat: bool = False
    """Whether the chat endpoint answers ``TEXT``, because there is no completions endpoint."""
    whole: EngineAnswer = field(init=False)
    """The answer at temperature 0."""
    streamed: EngineAnswer = field(init=False)
    """The same, streamed; without a stream, that in one piece."""
    samples: Mapping[int, str] = EMPTY_MAPPING
    """Seed → the answer at temperature ``HOT``; empty until they were asked for."""
    biased: str = ""
    """The answer at temperature 0 if a bias leaves two tokens; empty until it was asked for."""
    way: str = ""
    """The way in which the engine told the ids of a chat prompt; empty until it was found."""
    asked: Params = field(init=False)
    """The fields that ask for the ids of a prompt; empty if the engine refused them."""
    takes_ids: bool = False
    """Whether the engine has answered a prompt of token ids."""
    is_noisy: bool = False
    """Whether two answers at temperature 0 differ, so that comparisons of answers prove nothing."""
    saved: Mapping[str, Any] | None = None
    """The earlier report to compare with, if there is one."""
    fingerprint: Mapping[str, Any] = EMPTY_MAPPING
    """What identifies the model; empty until it was asked for."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the engine of the target understands."""
        return declared_capabilities(self.client.target)

    @property
    def known(self) -> frozenset[str]:
        """The fields that the engine should understand."""
        row = self.capabilities
        return (COMPLETIONS_PARAMS | row.sampling) - row.missing - row.ignored

    async def generate(self, params: Params = EMPTY_MAPPING, text: str = TEXT, **fields: Any) -> EngineAnswer:
        """Return the answer to a text, by default at temperature 0. ``fields``: further fields of ``Exchange``."""
        params = {"max_tokens": ANSWER_TOKENS, "temperature": 0, **params}
        exchange = Exchange("chat" if self.chat else "completions", "check", params=params, **fields)
        asked = {"messages": ({"role": "user", "content": text},)} if self.chat else {"prompts": (text,)}
        completion = await self.client.complete(replace(exchange, **asked))
        choice, usage = completion.choices[0], completion.usage
        text = str(choice.fields.get("reasoning_content") or "") + choice.text
        counts = (usage.prompt, usage.completion) if usage is not None else (0, 0)
        pieces = [one.text for one in completion.events if type(one) is Delta and one.text and not one.index]
        return EngineAnswer(completion, text, choice.finish.reason, counts, pieces)

    async def open(self) -> None:
        """Find the model, and ask for the first answers. Raises ``GatewayError``.

        At an address without configuration, the first model is taken, and its owner tells the kind of engine. An engine
        without completions is asked for chat answers.
        """
        target = self.client.target
        if self.route is None:
            served = next(iter(await self.client.models()), ServedModel("", ""))
            engine = OWNERS.get(served.owner.lower(), "openai")
            self.client.target = replace(target, model=served.name, engine=engine)
        ignored = self.capabilities.ignored
        self.asked = {name: value for name, value in ASKED.items() if name not in ignored}
        params = {"return_token_ids": True} if "return_token_ids" in self.known else {}
        self.chat = target.speaks == "chat"
        with suppress(UpstreamModelMissing):
            self.whole = self.streamed = await self.generate(params)
            return
        self.chat = True
        self.whole = self.streamed = await self.generate(params)

    def hot_seed(self) -> int:
        """Return a seed whose answer at temperature ``HOT`` is not that of temperature 0."""
        found = next((seed for seed, text in self.samples.items() if text != self.whole.text), 0)
        require(found, f"no answer at temperature {HOT:g} is another than that at temperature 0")
        return found


@dataclass(frozen=True, slots=True)
class EngineProbe:
    """One question about an engine."""

    name: str
    requests: int
    """The maximum number of requests of the probe."""
    advice: str
    """What to do if the engine differs."""
    run: Callable[[Subject], Awaitable[str]]
    """Asks the engine, and returns the evidence. Raises ``EngineDiffers`` or ``NotChecked``."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe."""

    probe: str
    verdict: ProbeVerdict
    evidence: str
    advice: str = ""
    """What to do; empty unless the engine differs."""


async def run_probe(probe: EngineProbe, subject: Subject) -> ProbeResult:
    """Run one probe. An error of the engine, or of the template, becomes the verdict ``could not check``."""
    try:
        return ProbeResult(probe.name, "ok", await probe.run(subject))
    except EngineDiffers as found:
        evidence, advice = found.args
        if subject.is_noisy:
            return ProbeResult(probe.name, "could not check", f"answers at temperature 0 differ; {evidence}")
        subject.is_noisy = probe.name == REPEATABLE
        return ProbeResult(probe.name, "differs", evidence, f"{advice}{probe.advice}")
    except (NotChecked, GatewayError) as reason:
        return ProbeResult(probe.name, "could not check", str(reason))
