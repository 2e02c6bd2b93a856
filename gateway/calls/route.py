"""One configured model, wired: its template, its admission rules, its backend and its tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from gateway.backend.openai.engine_tokenizer import EngineTokenizer
from gateway.backend.tokenizer import Tokenizer
from gateway.config.snapshot import ModelSpec
from gateway.core.dialogue import Dialogue
from gateway.core.exchange import Backend, EndpointName
from gateway.core.frozen import dataclass
from gateway.core.prompt import Prompt
from gateway.policy.admit.media import MediaRule
from gateway.policy.admit.output_parsing import OutputParsing
from gateway.policy.admit.parameters import Form, ParameterPolicy
from gateway.template.base import Template


@dataclass(frozen=True, slots=True)
class Route:
    """One model, ready to serve."""

    spec: ModelSpec
    form: Form
    template: Template
    backend: Backend
    parameters: Mapping[EndpointName, ParameterPolicy]
    """The parameter policy of each endpoint."""
    media: MediaRule
    template_id: str
    """``name@sha256:12hex``, for ``x-gateway-template``."""
    eos_stops: tuple[str, ...] = ()
    """The text of the template's ``eos_token_id``, if the tokenizer has it."""
    tokens: Tokenizer | None = None
    """The model's tokenizer, when the gateway has it."""
    max_model_len: int | None = None
    """The context in tokens; None when unknown."""
    engine_tokenizer: EngineTokenizer | None = None
    """Counts with the engine's tokenizer; None where the gateway counts itself, or the engine cannot."""
    passes_template_kwargs: bool = False
    """All targets render themselves, and accept ``chat_template_kwargs``."""
    output_parsing: OutputParsing | None = None
    """The parsers of answers to chat requests; None: all text is content."""
    render_async: Callable[[Dialogue], Awaitable[Prompt]] | None = None
    """Renders in place of ``template.render``: a chat template, which may run in a process of its own."""
