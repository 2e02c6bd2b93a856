"""The end of an answer: stop strings and token ids, which the template owns.

The stop strings are the generating role's ``end`` without white space around it, or, if nothing is left of it, the
beginning of the next entry of the round; then those of ``stop``.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import PromptMetadata, Segment
from gateway.template.spec import PrompterSpec, TemplateSpec


def prompt_metadata(
    spec: TemplateSpec, segments_of: Callable[[Dialogue], tuple[Segment, ...]] | None = None
) -> PromptMetadata:
    """The fields that are equal in all prompts of a template, without notices."""
    return PromptMetadata(stop_strings(spec), stop_token_ids(spec), spec.bos, spec.bos_text, segments_of=segments_of)


def stop_strings(spec: TemplateSpec) -> tuple[str, ...]:
    """The template's stop strings in order of precedence, without repeats."""
    ends = (_end_of_turn(spec),) if spec.prompter is None else _ends_of_prompter(spec.prompter)
    return tuple(dict.fromkeys(text for text in (*ends, *spec.stop) if text))


def stop_token_ids(spec: TemplateSpec) -> tuple[int, ...]:
    """``eos_token_id`` in the form that engines take."""
    return () if spec.eos_token_id is None else (spec.eos_token_id,)


def _end_of_turn(spec: TemplateSpec) -> str:
    generating = spec.generating
    if generating is None:
        return ""
    end = generating.end.strip()
    # An API model writes its own markers: the next role's begin is plain text there.
    if end or spec.api:
        return end
    following = spec.round[(spec.round.index(generating) + 1) % len(spec.round)]
    return (following if isinstance(following, str) else following.begin).strip()


def _ends_of_prompter(prompter: PrompterSpec) -> tuple[str, ...]:
    """``eoa``, or where the next user turn would begin; then the family's stop words (``docs/spec/lazyllm.md`` 11)."""
    end = prompter.tokens.eoa.strip()
    if not end and prompter.form == "chat":
        end = prompter.tokens.soh.strip()
    return (end, *prompter.stop_words)
