"""The stop strings and token ids of a template, which end an answer.

The first stop string is the ``end`` of the generating role, without white space around the text. If this ``end`` is
empty, the beginning of the next entry of the round is used. The strings of the template's key ``stop`` follow.
"""

from __future__ import annotations

from collections.abc import Callable

from metatemplate.templates.spec import PrompterSpec, TemplateSpec
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import PromptMetadata, Segment


def prompt_metadata(
    spec: TemplateSpec, segments_of: Callable[[Dialogue], tuple[Segment, ...]] | None = None
) -> PromptMetadata:
    """Return the metadata that all prompts of a template share: everything except the notices."""
    return PromptMetadata(stop_strings(spec), stop_token_ids(spec), spec.bos, spec.bos_text, segments_of=segments_of)


def stop_strings(spec: TemplateSpec) -> tuple[str, ...]:
    """Return the template's stop strings without duplicates, the most important first."""
    ends = (_end_of_turn(spec),) if spec.prompter is None else _ends_of_prompter(spec.prompter)
    return tuple(dict.fromkeys(text for text in (*ends, *spec.stop) if text))


def stop_token_ids(spec: TemplateSpec) -> tuple[int, ...]:
    """Return ``eos_token_id`` as a tuple of ids; empty if the template has no ``eos_token_id``."""
    return () if spec.eos_token_id is None else (spec.eos_token_id,)


def _end_of_turn(spec: TemplateSpec) -> str:
    generating = spec.generating
    if generating is None:
        return ""
    end = generating.end.strip()
    # The server of an API model writes the tokens around turns: the next role's ``begin`` does not end an answer.
    if end or spec.api:
        return end
    following = spec.round[(spec.round.index(generating) + 1) % len(spec.round)]
    return (following if isinstance(following, str) else following.begin).strip()


def _ends_of_prompter(prompter: PrompterSpec) -> tuple[str, ...]:
    """Return the stop strings of a prompter: ``eoa`` or the begin of the next user turn, then the family's stop words.

    See ``docs/spec/lazyllm.md`` 11. A prompter that makes messages has no stop strings: the server of an API model
    writes the tokens around turns, and stops at them.
    """
    if prompter.messages:
        return ()
    end = prompter.tokens.eoa.strip()
    if not end and prompter.form == "chat":
        end = prompter.tokens.soh.strip()
    return (end, *prompter.stop_words)
