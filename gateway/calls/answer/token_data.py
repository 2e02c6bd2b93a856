"""vLLM's additions to an answer: log probabilities of the prompt, token ids, and the echo of a chat's last message.

``token_request`` decides before a call which additions the answer must have. ``TokenData`` checks the target's values
while the answer arrives, and adds the values that the gateway computes. The fields have the same names as in vLLM:

    prompt_logprobs, prompt_token_ids   in each choice of a completion, at the top of a chat answer
    token_ids                           in each choice; in a stream in each delta
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeGuard

from gateway.backend.engines import declared_capabilities
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.core.errors import UnsupportedParameter, UpstreamIgnoredParameter, UpstreamInvalidResponse
from gateway.core.exchange import Exchange, RawPrompt
from gateway.policy.admit.parameters import LIMITS
from gateway.stream.prompt_logprobs import prompt_entries
from metatemplate.answers.stages import Stage
from metatemplate.templates.registry import first_difference
from metatemplate.tokenizer import token_ids
from metatemplate.values.events import Begun, Completion, Delta, Event, Finish
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The values that an answer must have in addition to OpenAI's fields."""

    prompt_logprobs: bool = False
    ids: Literal["target", "local"] | None = None
    """The source of the token ids: the target, or the gateway's tokenizer (``local``). None if not requested."""
    echo: str = ""
    """The text of the last message, with which a chat answer must begin. Empty if no echo is requested."""


def token_request(
    route: Route, call: Call, exchange: Exchange, top_logprobs: int | None
) -> tuple[Exchange, TokenRequest | None, tuple[Notice, ...]]:
    """Return the exchange to send, the additions that its answer must have, and the notices of the changes.

    ``top_logprobs``: the requested number of alternatives per token; None if no log probabilities are requested.
    Raises ``UnsupportedParameter`` if the policy or the targets do not support the request.
    """
    params, notices, echo = dict(exchange.params), list[Notice](), ""
    options = call.dialogue.options if call.dialogue is not None else None
    if call.dialogue is not None and params.pop("echo", False):
        last = call.dialogue.messages[-1]
        echo = last.text if last.role == "assistant" else ""
        if top_logprobs is not None and not call.stream:
            params.setdefault("prompt_logprobs", top_logprobs)
    scores = "prompt_logprobs" in params
    if options is not None and options.whole:
        if any(name in call.unknown and name not in exchange.params for name in ("prompt_logprobs", "echo")):
            raise UnsupportedParameter(
                "this model's policy drops prompt_logprobs, so the conversation cannot be scored; ask the operator to "
                "allow it (params.allow: [prompt_logprobs])",
                param="prompt_logprobs",
            )
        if "add_generation_prompt" not in call.given:
            notices.append(Notice("whole_conversation", "add_generation_prompt=false"))
        notices += _one_token(params, route.spec.omit)
        if exchange.messages:
            _check_whole(route)
            params["add_generation_prompt"] = False
    ids: Literal["target", "local"] | None = None
    if params.get("return_token_ids"):
        ids = "target"
        known = all("return_token_ids" in declared_capabilities(target).sampling for target in route.spec.targets)
        if exchange.prompts and route.tokens is not None and not known:
            del params["return_token_ids"]
            ids = "local"
            notices.append(Notice("local_token_ids", "made by the gateway's tokenizer"))
    request = TokenRequest(prompt_logprobs=scores, ids=ids, echo=echo)
    stream = call.stream if scores else exchange.stream  # a stream of vLLM has no prompt_logprobs
    exchange = replace(exchange, params=params, stream=stream)
    return exchange, None if request == TokenRequest() else request, tuple(notices)


def _one_token(params: dict[str, Any], omitted: Collection[str]) -> list[Notice]:
    """Limit the answer to a complete conversation to one token, the smallest limit that every engine accepts.

    Returns a notice for each change. ``omitted``: parameters that the targets refuse.
    """
    given = [name for name in LIMITS if name in params]
    changed = [name for name in given if params[name] != 1]
    params.update(dict.fromkeys(given, 1))
    if not given:
        name = "max_completion_tokens" if "max_tokens" in omitted else "max_tokens"
        params[name] = 1
        return [Notice("default_parameter", f"{name}=1")]
    return [Notice("clamped_parameter", f"{name}=1") for name in changed]


def _check_whole(route: Route) -> None:
    """Raise ``UnsupportedParameter`` if a target may add the beginning of an answer to a complete conversation."""
    for target in route.spec.targets:
        if "add_generation_prompt" not in declared_capabilities(target).chat:
            raise UnsupportedParameter(
                f"the target {target.label} renders the messages and may add a generation prompt, so a complete "
                "conversation cannot be scored; use a target with engine: vllm or llamacpp",
                param="add_generation_prompt",
            )


def tokenizes_special(route: Route, exchange: Exchange) -> bool:
    """Return whether the engine's tokenizer adds its special tokens (BOS) to a string prompt."""
    if exchange.bos != "none":
        return exchange.bos == "engine"
    target = route.spec.targets[0]
    adds = declared_capabilities(target).adds_bos if target.adds_bos is None else target.adds_bos
    return bool(exchange.params.get("add_special_tokens", adds is not False))


class TokenData(Stage):
    """Checks the token data of one call's answer, and adds the data that the gateway computes."""

    __slots__ = (
        "_begun",
        "_choices",
        "_compared",
        "_exchange",
        "_prompt_ids",
        "_request",
        "_route",
        "_texts",
        "_timeline",
        "_with_ids",
    )

    def __init__(self, request: TokenRequest, route: Route, exchange: Exchange, timeline: CallTimeline) -> None:
        self._request = request
        self._route = route
        self._exchange = exchange
        self._timeline = timeline
        self._choices = range(max(len(exchange.prompts), 1) * exchange.n)
        self._begun = False
        """True if the values that come before the first text of the answer have been sent."""
        self._texts: dict[int, list[str]] = {}
        """Choice → the received texts of the choice, from which token ids are computed or checked."""
        self._prompt_ids: dict[int, Any] = {}
        """Choice → the target's token ids of the prompt. A chat answer has them only for choice 0."""
        self._compared: set[int] = set()
        """The choices whose ``_prompt_ids`` have been compared with the tokenizer."""
        self._with_ids: set[int] = set()
        """The choices whose first text came with token ids."""

    def process(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Read a batch of the target, and return the batch.

        Raises ``UpstreamIgnoredParameter`` if the target must send token ids and sends text without token ids.
        """
        for event in batch:
            if isinstance(event, Begun):
                if "prompt_token_ids" in event.fields:
                    self._prompt_ids[0] = event.fields["prompt_token_ids"]
            elif isinstance(event, Delta):
                if "prompt_token_ids" in event.extras:
                    self._prompt_ids.setdefault(event.index, event.extras["prompt_token_ids"])
                if self._request.ids is not None and event.text:
                    self._texts.setdefault(event.index, []).append(event.text)
                if "token_ids" in event.extras:
                    self._with_ids.add(event.index)
                elif event.text and self._request.ids == "target" and event.index not in self._with_ids:
                    raise _ignored("return_token_ids", "token_ids")
        return batch

    async def send(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch for the client, with the additions. Raises an error if the target's token ids are wrong."""
        sent: list[Event] = []
        for event in batch:
            if isinstance(event, Delta | Finish) and not self._begun:
                self._begun = True
                sent += await self._first()
            if isinstance(event, Finish) and self._request.ids == "local":
                assert self._route.tokens is not None
                text = "".join(self._texts.get(event.index, ()))
                ids = await token_ids(self._route.tokens, text, special=False)
                sent.append(Delta(event.index, extras={"token_ids": ids}))
            sent.append(event)
        if self._request.ids == "target":
            await self._compare_prompts()
        return sent

    async def check(self, completion: Completion) -> Completion:
        """Check a whole answer and return it unchanged.

        Raises ``UpstreamIgnoredParameter`` for missing values, and ``UpstreamInvalidResponse`` for wrong values.
        """
        usage, prompts = completion.usage, self._exchange.prompts
        counted = usage.prompt if usage is not None and usage.source == "upstream" and len(prompts) < 2 else None
        for choice in completion.choices:
            if self._request.prompt_logprobs:
                entries = prompt_entries(completion, choice, counted)
                await self._compare(choice.index, [next(iter(entry)) for entry in entries[1:] if entry], 1)
            if self._request.ids == "target":
                self._check_answer(choice.index, choice.extras.get("token_ids"))
        if self._request.ids == "local" and counted is not None:
            ids = await self._local_ids(0)
            if ids is not None and len(ids) != counted:
                self._differ(f"the prompt has {counted} tokens for the target, {len(ids)} for the gateway's tokenizer")
        return completion

    async def _first(self) -> list[Event]:
        """Return the events that come before the first text of the answer."""
        first: list[Event] = []
        if self._request.ids == "target" and not self._prompt_ids:
            raise _ignored("return_token_ids", "prompt_token_ids")
        for index in self._choices:
            if self._request.ids == "local":
                first.append(Delta(index, extras={"prompt_token_ids": await self._local_ids(index)}))
            if self._request.echo:
                first.append(Delta(index, self._request.echo))
        return first

    async def _local_ids(self, index: int) -> list[int] | None:
        """Return the token ids of a choice's prompt from the gateway's tokenizer.

        None if the gateway has no tokenizer of the model, or if the engine renders the prompt.
        """
        prompts = self._exchange.prompts
        if not prompts:
            return None
        prompt: RawPrompt = prompts[index // self._exchange.n]
        if not isinstance(prompt, str):
            return list(prompt)
        if self._route.tokens is None:
            return None
        special = tokenizes_special(self._route, self._exchange)
        return await token_ids(self._route.tokens, prompt, special=special)

    async def _compare_prompts(self) -> None:
        """Compare the target's token ids of the prompts with the token ids from the gateway's tokenizer."""
        for index in self._prompt_ids.keys() - self._compared:
            self._compared.add(index)
            ids = self._prompt_ids[index]
            if not _are_ids(ids):
                raise UpstreamInvalidResponse("the model's server sent prompt_token_ids that are not token ids")
            await self._compare(index, ids, 0)

    async def _compare(self, index: int, ids: Sequence[int | str], start: int) -> None:
        """Compare the target's token ids of a prompt with the gateway's, and add a notice if they differ.

        ``start``: the position of the first of the target's ids in the prompt.
        """
        local = await self._local_ids(index)
        if local is None:
            return
        texts, others = list(map(str, ids)), list(map(str, local[start:]))
        if texts != others:
            at = start + first_difference(texts, others)
            counts = f"{len(ids) + start} tokens for the target, {len(local)} for the gateway's tokenizer"
            self._differ(f"the prompt differs from token {at} on: {counts}")

    def _check_answer(self, index: int, ids: object) -> None:
        """Check the target's token ids of one answer. Adds a notice if they do not decode to the answer's text."""
        if not self._texts.get(index) and ids is None:
            return
        if not _are_ids(ids):
            raise UpstreamInvalidResponse("the model's server sent token_ids that are not token ids")
        tokens, text = self._route.tokens, "".join(self._texts.get(index, ())).lstrip()
        if tokens is None or self._exchange.params.get("echo") or "\ufffd" in text:
            return
        # A stop that the engine has removed from the text is still part of the ids, and so are special tokens.
        decoded = [tokens.detokenize(ids, skip).lstrip() for skip in (False, True)]
        if not any(one.startswith(text) for one in decoded):
            self._differ(f"the token ids of choice {index} do not decode to its text")

    def _differ(self, what: str) -> None:
        notice = f"token_ids_differ: {what}"
        if notice not in self._timeline.delivery_notices:
            self._timeline.delivery_notices.append(notice)


def _ignored(param: str, missing: str) -> UpstreamIgnoredParameter:
    return UpstreamIgnoredParameter(f"the model's server ignored {param}: its answer has no {missing}", param=param)


def _are_ids(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int for one in value)
