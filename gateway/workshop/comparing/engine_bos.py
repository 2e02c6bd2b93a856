"""Finds out whether a model receives a BOS that its template did not write."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.backend.engines import declared_capabilities
from gateway.config.snapshot import ModelSpec, TargetSpec
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.prompt import Bos


def tokenizer_bos(tokens: Tokenizer | None) -> str:
    """Return the text of the single token that a tokenizer puts before every text; empty if it adds no such token."""
    if tokens is None:
        return ""
    plain, full = tokens.tokenize("a", False), tokens.tokenize("a", True)
    return tokens.detokenize(full[:1]) if full[1 : 1 + len(plain)] == plain else ""


@dataclass(frozen=True, slots=True)
class EngineBos:
    """Whether the engines of a model put a BOS before a prompt; None: this is not known, or the targets differ."""

    by_default: bool | None = None
    """Whether the engines add a BOS if the template has ``bos: none``."""
    on_request: bool | None = None
    """Whether the engines add a BOS if the template has ``bos: engine``."""


def engine_bos_of(model: ModelSpec | None, tokens: Tokenizer | None) -> EngineBos:
    """Return whether the engines of all targets add a BOS. Engines can add a BOS only if the tokenizer has one."""
    if model is None:
        return EngineBos()
    tokenizer_adds = bool(tokenizer_bos(tokens)) if tokens is not None else None

    def by_default(target: TargetSpec) -> bool | None:
        if target.adds_bos is not None:
            return target.adds_bos
        return tokenizer_adds if declared_capabilities(target).adds_bos else None

    def on_request(target: TargetSpec) -> bool | None:
        return tokenizer_adds if declared_capabilities(target).bos_switch is not None else by_default(target)

    defaults, requested = [{of(target) for target in model.targets} for of in (by_default, on_request)]
    return EngineBos(
        by_default=defaults.pop() if len(defaults) == 1 else None,
        on_request=requested.pop() if len(requested) == 1 else None,
    )


def describe_bos(bos: Bos | None, engine_bos: EngineBos) -> str:
    """Return a phrase about where a prompt's BOS comes from. ``bos`` is None for a reference's chat template."""
    if bos is None:
        return "only as written in its text"
    if bos == "text":
        return "in its text"
    if bos == "engine":
        by_engine = "expected from the engine (bos: engine), which adds none"
        return by_engine if engine_bos.on_request is False else "added by the engine (bos: engine)"
    if engine_bos.by_default is None:
        return "left to the engine (bos: none); the comparison assumes that the engine adds none"
    return f"left to the engine (bos: none), which adds {'one' if engine_bos.by_default else 'none'}"
