"""Does the model see a BOS that no template wrote? What engines add, told to or out of habit (``backend/bos.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.backend.engines import declared_capabilities
from gateway.backend.tokenizer import Tokenizer
from gateway.config.snapshot import ModelSpec, TargetSpec
from gateway.core.prompt import Bos


@dataclass(frozen=True, slots=True)
class Habit:
    """What a model's engines do before a text; None: nobody knows, or they do not agree."""

    unasked: bool | None = None
    """Is there a BOS where the template leaves it to them (``bos: none``)?"""
    told: bool | None = None
    """Is there one where the template expects it from them (``bos: engine``)?"""


def bos_of(tokens: Tokenizer | None) -> str:
    """The text of the one token that a tokenizer puts before every text; empty if there is none."""
    if tokens is None:
        return ""
    plain, full = tokens.tokenize("a", False), tokens.tokenize("a", True)
    return tokens.detokenize(full[:1]) if full[1 : 1 + len(plain)] == plain else ""


def habit_of(model: ModelSpec | None, tokens: Tokenizer | None) -> Habit:
    """The habit that all targets of a model share; nothing is known of a template without a model."""
    if model is None:
        return Habit()
    # An engine adds what the tokenizer adds, so that has to be seen; without one nothing is sure.
    adds = bool(bos_of(tokens)) if tokens is not None else None
    return Habit(
        unasked=_shared([_unasked(target, adds) for target in model.targets]),
        told=_shared([adds if _has_switch(target) else _unasked(target, adds) for target in model.targets]),
    )


def _unasked(target: TargetSpec, adds: bool | None) -> bool | None:
    if target.adds_bos is not None:
        return target.adds_bos
    return adds if declared_capabilities(target).adds_bos else None


def _has_switch(target: TargetSpec) -> bool:
    """Can it be told to add one?"""
    return declared_capabilities(target).bos_switch is not None


def _shared(found: list[bool | None]) -> bool | None:
    return found[0] if len(set(found)) == 1 else None


WRITERS: Mapping[tuple[Bos, bool | None], str] = {
    ("text", None): "in its text",
    ("engine", True): "added by the engine (bos: engine)",
    ("engine", None): "added by the engine (bos: engine)",
    ("engine", False): "expected from the engine (bos: engine), which adds none",
    ("none", True): "left to the engine (bos: none), which adds one",
    ("none", False): "left to the engine (bos: none), which adds none",
    ("none", None): "left to the engine (bos: none); it is not known whether that adds one, so it is compared without",
}


def writer(bos: Bos, habit: Habit) -> str:
    """Who writes the BOS of a template's prompts, in words."""
    return WRITERS[bos, {"text": None, "engine": habit.told, "none": habit.unasked}[bos]]
