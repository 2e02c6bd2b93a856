"""The log probabilities of a prompt's tokens, read from an answer and checked against the request.

Engines send them in three places: before those of the answer (``echo`` with ``logprobs``), as ``prompt_logprobs`` of
the choice (vLLM's completions), or as ``prompt_logprobs`` of the whole answer (vLLM's chat). A wrong score
with status 200 would not be noticed, so an unclear answer is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.completion import Choice, Completion
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamIgnoredParameter, UpstreamInvalidResponse
from gateway.core.events import TokenLogprob

PROMPT_LOGPROBS = "prompt_logprobs"
"""vLLM's name of the request field, and of the key in the answer."""

PromptEntry = Mapping[str, Mapping[str, Any]]
"""``{"<token id>": {"logprob": number, …}, …}``: one token of a prompt and its alternatives. Only the first token may
have null instead."""
PromptTokens = tuple[TokenLogprob, ...]
"""The tokens of a prompt in order. Only the first may have no log probability."""


def echoed_logprobs(completion: Completion, prompt: str, bos: str = "") -> PromptTokens:
    """The tokens of a prompt that an engine repeats at the start of its answer.

    The answer must begin with ``prompt``. The template's ``bos`` may be missing there, and the engine's BOS may come
    first. The usage shows how many of the tokens belong to the prompt: the engine's BOS is counted
    there, but not every engine returns it as a token.
    """
    choice = _only_choice(completion)
    if not choice.logprobs:
        raise UpstreamIgnoredParameter("the model's server ignored logprobs", param="logprobs")
    text, first = prompt.removeprefix(bos), choice.logprobs[0].token
    echoes = [start + text for start in ("", bos, first) if choice.text.startswith(start + text)]
    if not echoes:
        raise UpstreamIgnoredParameter(
            "the model's server ignored echo: its answer does not begin with the prompt", param="echo"
        )
    usage = completion.usage
    if usage is None:
        raise UpstreamInvalidResponse(
            "the model's server sent no usage, so the tokens of the prompt and of the answer cannot be told apart"
        )
    tokens = choice.logprobs[: max(len(choice.logprobs) - usage.completion, 0)]
    spelled = "".join([token.token for token in tokens])
    # Tokens that spell only the start of the prompt are too few. Special tokens may have no text.
    cut = any(token.token for token in tokens[-1:]) and spelled not in echoes and echoes[-1].startswith(spelled)
    if cut or len(tokens) not in (usage.prompt, usage.prompt - 1):
        raise _wrong_number(len(tokens), usage.prompt)
    return _checked(tokens)


def listed_logprobs(completion: Completion) -> PromptTokens:
    """The tokens of a prompt for which ``prompt_logprobs: 0`` was requested. A token is its id as a string."""
    expected = completion.usage.prompt if completion.usage is not None else None
    return tuple([_listed(entry) for entry in prompt_entries(completion, _only_choice(completion), expected)])


def prompt_entries(completion: Completion, choice: Choice, expected: int | None) -> list[PromptEntry | None]:
    """The checked ``prompt_logprobs`` of a choice, or else of the whole answer. Raises an ``UpstreamError``.

    ``expected``: the number of the prompt's tokens; None if it is not known.
    """
    fields = completion.begun.fields if completion.begun is not None else EMPTY_MAPPING
    entries = choice.extras.get(PROMPT_LOGPROBS, fields.get(PROMPT_LOGPROBS))
    if not entries:
        raise UpstreamIgnoredParameter(
            f"the model's server ignored {PROMPT_LOGPROBS}; scores made without them would be wrong",
            param=PROMPT_LOGPROBS,
        )
    if not isinstance(entries, list) or not all(map(_is_entry, entries[entries[0] is None :])):
        raise UpstreamInvalidResponse(
            f"the model's server sent {PROMPT_LOGPROBS} that are not one object of token ids for each token"
        )
    if expected is not None and len(entries) != expected:
        raise _wrong_number(len(entries), expected)
    return entries


def _only_choice(completion: Completion) -> Choice:
    if len(completion.choices) != 1:
        raise UpstreamInvalidResponse("the model's server sent several choices; one was requested")
    return completion.choices[0]


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and bool(entry)
        and all(isinstance(score, dict) and type(score.get("logprob")) in (int, float) for score in entry.values())
    )


def _listed(entry: PromptEntry | None) -> TokenLogprob:
    """The token of an entry. Alternatives were not requested, so an entry with several tokens is an error."""
    if entry is None:
        return TokenLogprob("", None)
    if len(entry) > 1:
        raise UpstreamInvalidResponse(
            f"the model's server sent {PROMPT_LOGPROBS} that are not one log probability for each token"
        )
    ((token, score),) = entry.items()
    return TokenLogprob(token, score["logprob"])


def _checked(tokens: PromptTokens) -> PromptTokens:
    for number, token in enumerate(tokens):
        if number and token.logprob is None:
            raise UpstreamInvalidResponse(
                f"the model's server sent no log probability for token {number + 1} of the prompt"
            )
    return tokens


def _wrong_number(found: int, expected: int) -> UpstreamInvalidResponse:
    return UpstreamInvalidResponse(
        f"the model's server sent log probabilities for {found} tokens of a prompt of {expected}"
    )
