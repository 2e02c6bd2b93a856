"""Asks a server which prompt it makes of a chat request: vLLM, or the server of llama.cpp.

POST /v1/chat/completions/render  vLLM with --enable-scale-out: {token_ids}, which /detokenize turns into text
POST /apply-template              llama.cpp: {prompt}, without the BOS that it adds to prompts
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.backend.http_client.client import HttpClient, server_root
from gateway.backend.openai.tokenizer_client import TokenizerClient
from gateway.cli.connecting.engine import CONNECT_SECONDS, REQUEST_SECONDS
from gateway.cli.options import CommandError
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, RequestError, UpstreamModelMissing, UpstreamRejectedRequest
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt

VLLM, LLAMACPP = "/v1/chat/completions/render", "/apply-template"
NO_ENDPOINT = f"it has neither {VLLM} (vLLM has it with --enable-scale-out) nor {LLAMACPP} (llama.cpp)"


@dataclass(frozen=True, slots=True)
class RenderingServer:
    """A server that renders chat requests."""

    target: TargetSpec
    kwargs: Mapping[str, Any]
    """The variables of the chat template, for every request."""
    path: str = ""
    """The endpoint that renders."""
    bos: str = ""
    """The BOS that llama.cpp puts before every prompt. Its rendered prompts do not begin with it."""

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt. Raises ``RequestError`` for a refusal, and ``CommandError`` if the server fails."""
        answer = self.ask(self.path, chat_fields(dialogue, self.kwargs))
        if self.path == VLLM:
            answer = self.ask("/detokenize", {"tokens": answer.get("token_ids")})
        if not isinstance(answer.get("prompt"), str):
            raise CommandError(f"the server at {self.target.url} sent no prompt")
        return Prompt(f"{self.bos}{answer['prompt']}")

    def ask(self, path: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the answer to a POST, or to a GET if ``fields`` is None. See ``render`` for the errors."""
        try:
            return asyncio.run(self._ask(path, fields))
        except (RequestError, UpstreamModelMissing):
            raise
        except GatewayError as error:
            if error.upstream_status == 500:  # llama.cpp answers so if the template refuses the conversation
                raise UpstreamRejectedRequest(f"{error.message}: {error.reason}") from None
            raise CommandError(f"no prompts to compare with: {error.message}") from None

    async def _ask(self, path: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
        client = HttpClient()
        try:
            return await TokenizerClient(self.target, client, CONNECT_SECONDS, REQUEST_SECONDS).ask(path, fields)
        finally:
            await client.aclose()


def chat_fields(dialogue: Dialogue, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat request for a dialogue. ``kwargs``: the variables of the chat template."""
    options = dialogue.options
    return {
        "messages": [message.raw for message in dialogue.messages],
        **({"tools": options.tools} if options.tools else {}),
        **({"chat_template_kwargs": kwargs} if kwargs else {}),
        "add_generation_prompt": not (options.continue_final or options.whole),
        "continue_final_message": options.continue_final,
    }


def find_rendering_server(url: str, targets: Sequence[TargetSpec], kwargs: Mapping[str, Any]) -> RenderingServer:
    """Return the server at an address. Raises ``CommandError`` if it cannot be reached, or does not render.

    ``targets``: the targets of the model. If one is at the address, its key is sent. If the server does not list the
    target's model, the first model that it lists is asked for.
    """
    root, name = server_root(url), targets[0].model if targets else ""
    other = TargetSpec(label=url, speaks="completions", url=root, model=name)
    target = next((one for one in targets if server_root(one.url) == root), other)
    server = RenderingServer(target, kwargs)
    cards = server.ask("/v1/models", None).get("data")
    names = [str(card.get("id")) for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    if target.model not in names:
        server = replace(server, target=replace(target, model=next(iter(names), target.model)))
    for path in (VLLM, LLAMACPP):
        try:
            server.ask(path, {"messages": [{"role": "user", "content": "a"}]})
        except UpstreamModelMissing:
            continue
        except RequestError:  # the template refuses this question
            pass
        return replace(server, path=path, bos=_bos(server) if path == LLAMACPP else "")
    raise CommandError(f"{url} renders no prompts: {NO_ENDPOINT}")


def _bos(server: RenderingServer) -> str:
    """Return the text of the BOS that llama.cpp puts before every prompt; empty if it puts none."""
    match server.ask("/tokenize", {"content": "", "add_special": True, "with_pieces": True}):
        case {"tokens": [{"piece": str(piece)}, *_]}:
            return piece
    return ""
