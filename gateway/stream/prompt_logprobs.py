"""The log probabilities of a prompt's tokens, read from an answer and checked against the request.

Engines send these values in three places: before the log probabilities of the answer (``echo`` with ``logprobs``), as
``prompt_logprobs`` of the choice (vLLM's completions), or as ``prompt_logprobs`` of the whole answer (vLLM's chat).
Clients would not notice a wrong score. Therefore an unclear answer is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import UpstreamIgnoredParameter, UpstreamInvalidResponse
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import SKIPPED_CHOICE, Choice, Completion, TokenLogprob

PROMPT_LOGPROBS = "prompt_logprobs"
"""vLLM's name of the request field, and of the key in the answer."""

CHECK_ENGINE = "use an engine or version that supports it, and check engine: of this target"
"""What to do about a parameter that a server ignored."""

PromptEntry = Mapping[str, Mapping[str, Any]]
"""``{"<token id>": {"logprob": number, …}, …}``: one token of a prompt and its alternatives. Only the first token may
have null instead."""
PromptTokens = tuple[TokenLogprob, ...]
"""The tokens of a prompt in order. Only the first token may have no log probability."""


def echoed_logprobs(completion: Completion, prompt: str, bos: str = "") -> PromptTokens:
    """Return the tokens of a prompt that the engine repeats at the start of its answer.

    The answer must begin with ``prompt``. The repeated prompt may lack the template's ``bos``, and may begin with the
    engine's BOS. The usage contains the number of prompt tokens, including the engine's BOS. Not every engine returns
    the BOS as a token.
    """
    choice = _only_choice(completion)
    if not choice.logprobs:
        raise UpstreamIgnoredParameter(f"the model's server ignored logprobs; {CHECK_ENGINE}", param="logprobs")
    text, first = prompt.removeprefix(bos), choice.logprobs[0].token
    echoes = [start + text for start in ("", bos, first) if choice.text.startswith(start + text)]
    if not echoes:
        raise UpstreamIgnoredParameter(
            f"the model's server ignored echo: its answer does not begin with the prompt; {CHECK_ENGINE}", param="echo"
        )
    usage = completion.usage
    if usage is None:
        raise UpstreamInvalidResponse(
            "the model's server sent no usage, so the tokens of the prompt and of the answer cannot be separated"
        )
    tokens = choice.logprobs[: max(len(choice.logprobs) - usage.completion, 0)]
    spelled = "".join([token.token for token in tokens])
    # Tokens that spell only the start of the prompt are too few. Special tokens may have no text.
    cut = any(token.token for token in tokens[-1:]) and spelled not in echoes and echoes[-1].startswith(spelled)
    if cut or len(tokens) not in (usage.prompt, usage.prompt - 1):
        raise _wrong_number(len(tokens), usage.prompt)
    for number, token in enumerate(tokens[1:], 2):
        if token.logprob is None:
            raise UpstreamInvalidResponse(
                f"the model's server sent no log probability for token {number} of the prompt"
            )
    return tokens


def listed_logprobs(completion: Completion) -> PromptTokens:
    """Return the tokens of a prompt for which ``prompt_logprobs: 0`` was requested, each as its id in a string."""
    expected = completion.usage.prompt if completion.usage is not None else None
    return tuple([_listed(entry) for entry in prompt_entries(completion, _only_choice(completion), expected)])


def prompt_entries(completion: Completion, choice: Choice, expected: int | None) -> list[PromptEntry | None]:
    """Return the checked ``prompt_logprobs`` of a choice, otherwise of the whole answer. Raises ``UpstreamError``.

    ``expected``: the number of tokens in the prompt; None if this number is not known.
    """
    fields = completion.begun.fields if completion.begun is not None else EMPTY_MAPPING
    entries = choice.extras.get(PROMPT_LOGPROBS, fields.get(PROMPT_LOGPROBS))
    if not entries:
        message = (
            f"the model's server ignored {PROMPT_LOGPROBS}, and scores would be wrong; with speaks: chat, set speaks: "
            "completions and the model's template; otherwise correct engine: of the target, or use a server that "
            "supports the field, such as vLLM"
        )
        raise UpstreamIgnoredParameter(message, param=PROMPT_LOGPROBS)
    if not isinstance(entries, list) or not all(map(_is_entry, entries[entries[0] is None :])):
        raise UpstreamInvalidResponse(
            f"the model's server sent {PROMPT_LOGPROBS} that are not one object of token ids for each token"
        )
    if expected is not None and len(entries) != expected:
        raise _wrong_number(len(entries), expected)
    return entries


def _only_choice(completion: Completion) -> Choice:
    notices = completion.begun.notices if completion.begun is not None else ()
    if len(completion.choices) != 1 or any(notice.startswith(SKIPPED_CHOICE) for notice in notices):
        raise UpstreamInvalidResponse("the model's server sent several choices, but one choice was requested")
    return completion.choices[0]


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and bool(entry)
        and all(isinstance(score, dict) and type(score.get("logprob")) in (int, float) for score in entry.values())
    )


def _listed(entry: PromptEntry | None) -> TokenLogprob:
    """Return the token of an entry. An entry with several tokens is an error: alternatives were not requested."""
    if entry is None:
        return TokenLogprob("", None)
    if len(entry) > 1:
        raise UpstreamInvalidResponse(
            f"the model's server sent {PROMPT_LOGPROBS} that are not one log probability for each token"
        )
    ((token, score),) = entry.items()
    return TokenLogprob(token, score["logprob"])


def _wrong_number(found: int, expected: int) -> UpstreamInvalidResponse:
    return UpstreamInvalidResponse(
        f"the model's server sent log probabilities for {found} tokens, but the prompt has {expected} tokens"
    )
