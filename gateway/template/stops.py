"""Where does an answer end? The template owns the stop strings (design 4.2).

The generating role's ``end``, stripped; when only blanks are left, the beginning of
whatever comes next in the round; then ``stop``. ``eos_token_id`` goes along as an id.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import PromptMetadata, Segment
from gateway.template.spec.prompter import PrompterSpec
from gateway.template.spec.template import RoleSpec, TemplateSpec


def manner_of(
    spec: TemplateSpec, segments_of: Callable[[Dialogue], tuple[Segment, ...]] | None = None
) -> PromptMetadata:
    """What all prompts of a string template have in common, as long as there is nothing to tell of them."""
    return PromptMetadata(stop_strings(spec), stop_token_ids(spec), spec.bos, spec.bos_text, segments_of=segments_of)


def stop_strings(spec: TemplateSpec) -> tuple[str, ...]:
    """The template's stop strings in order of precedence, without repeats."""
    ends = (_end_of_turn(spec),) if spec.prompter is None else _ends_of_prompter(spec.prompter)
    return tuple(dict.fromkeys(text for text in (*ends, *spec.stop) if text))


def stop_token_ids(spec: TemplateSpec) -> tuple[int, ...]:
    """``eos_token_id`` as engines take it."""
    return () if spec.eos_token_id is None else (spec.eos_token_id,)


def _end_of_turn(spec: TemplateSpec) -> str:
    generating = spec.generating
    if generating is None:
        return ""
    end = generating.end.strip()
    # An API model marks its turns itself: the next role's begin is ordinary text there.
    return end if end or spec.api else _next_begin(spec, generating)


def _ends_of_prompter(prompter: PrompterSpec) -> tuple[str, ...]:
    """``eoa``, or where the next user turn would begin; then the family's stop words (``docs/spec/lazyllm.md`` 11)."""
    end = prompter.tokens.eoa.strip()
    if not end and prompter.form == "chat":
        end = prompter.tokens.soh.strip()
    return (end, *prompter.stop_words)


def _next_begin(spec: TemplateSpec, generating: RoleSpec) -> str:
    """What the template writes after the generating role's turn; the round starts over at its end."""
    after = spec.round[(spec.round.index(generating) + 1) % len(spec.round)]
    return (after if isinstance(after, str) else after.begin).strip()
