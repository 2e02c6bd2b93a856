"""How does a raw completions engine get its prompt? As the exact string, or token ids, it was raised on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from gateway.backend.answers import COMPLETIONS
from gateway.backend.engines import ENGINES, Dialect, unverified_fields
from gateway.backend.http import HttpClient
from gateway.backend.upstream import PATHS, Upstream
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.events import Event
from gateway.core.exchange import Exchange, RawPrompt


class CompletionsBackend:
    """``speaks: completions``: an OpenAI-compatible server that takes plain text."""

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        self._upstream = Upstream(target, client, connect_timeout)
        self._dialect = ENGINES[target.engine]
        self._adds_bos = self._dialect.adds_bos if target.adds_bos is None else target.adds_bos

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Ask the engine; ``UnsupportedParameter`` for what plain text cannot say."""
        if exchange.endpoint == "embeddings":
            return self._upstream.embed(exchange)
        if not exchange.prompts:
            raise UnsupportedParameter("this model's target takes a prompt, not messages", param="messages")
        self._refuse_what_it_cannot(exchange)
        bos = bos_rule(exchange, self._dialect, self._adds_bos)
        notices = bos.notices
        if strange := unverified_fields(self._dialect, exchange.params):
            notices = (*notices, f"unverified_parameter: {' '.join(strange[:8])}")
        return self._upstream.complete(exchange, PATHS["completions"], self._body(exchange, bos), COMPLETIONS, notices)

    def _refuse_what_it_cannot(self, exchange: Exchange) -> None:
        """Fields that the engine would ignore in silence, and token ids where it takes only strings."""
        for name in sorted(self._dialect.missing & exchange.params.keys()):
            if exchange.params[name]:  # 0, false and the like ask for nothing
                raise UnsupportedParameter(f"this model's engine does not know {name}; leave it out", param=name)
        if not self._dialect.token_prompts and any(not isinstance(prompt, str) for prompt in exchange.prompts):
            raise UnsupportedParameter("this model's engine takes strings only, not token ids", param="prompt")

    def _body(self, exchange: Exchange, bos: BosRule) -> dict[str, Any]:
        prompts = [_wire(prompt, bos.strip) for prompt in exchange.prompts]
        body: dict[str, Any] = {
            **exchange.params,
            **bos.fields,
            "prompt": prompts if exchange.prompt_is_list or len(prompts) > 1 else prompts[0],
        }
        return body | common_fields(exchange, self._dialect)


def common_fields(exchange: Exchange, dialect: Dialect) -> dict[str, Any]:
    """The fields that both endpoints share and only the gateway writes."""
    body: dict[str, Any] = {"stream": exchange.stream}
    if exchange.n > 1:
        body["n"] = exchange.n
    if exchange.stops:
        body["stop"] = list(exchange.stops)
    if exchange.stop_token_ids and dialect.stop_token_ids:
        # The client's own are added to the template's, as with stop strings.
        theirs = exchange.params.get("stop_token_ids")
        body["stop_token_ids"] = [*exchange.stop_token_ids, *(theirs if isinstance(theirs, list) else ())]
    if exchange.stream:
        body["stream_options"] = {"include_usage": True}
    return body


# ---------------------------------------------------------------- BOS (design 4.3)


@dataclass(frozen=True, slots=True)
class BosRule:
    """What has to be done so that the model sees exactly one BOS."""

    fields: dict[str, bool]
    """Goes into the body: the engine's switch, where it has one."""
    strip: str = ""
    """Is taken from the start of each string prompt, because the engine adds it again."""
    notices: tuple[str, ...] = ()


# Who writes the BOS / does the engine add one:
#               has a switch      adds it           adds none         not known
#   text        switch off        strip the text    leave             leave, and say so
#   engine      switch on         leave             say so            leave, and say so
#   none        the engine's habit stands
def bos_rule(exchange: Exchange, dialect: Dialect, adds_bos: bool | None) -> BosRule:
    """The rule for one exchange; token ids are never touched."""
    if exchange.bos == "none" or not any(isinstance(prompt, str) for prompt in exchange.prompts):
        return BosRule({})
    if dialect.bos_switch is not None:
        wanted = exchange.bos == "engine"
        asked = exchange.params.get(dialect.bos_switch, wanted)
        notices = () if asked == wanted else (f"bos: {dialect.bos_switch} is the template's to set",)
        return BosRule({dialect.bos_switch: wanted}, notices=notices)
    if adds_bos is None:
        return BosRule({}, notices=("bos: not verified, the target does not say whether it adds one (adds_bos)",))
    if exchange.bos == "text":
        return BosRule({}, strip=exchange.bos_text if adds_bos else "")
    return BosRule({}) if adds_bos else BosRule({}, notices=("bos: missing, the template expects it from the engine",))


def _wire(prompt: RawPrompt, strip: str) -> str | list[int]:
    return prompt.removeprefix(strip) if isinstance(prompt, str) else list(prompt)
