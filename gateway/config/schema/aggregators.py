"""Aggregators: services that send a call to one of several providers of a model, and may change the provider.

Providers differ in precision, context length, templates and sampling, so scores of two calls may not be comparable.
A new aggregator needs a row here. The fields are those of the aggregators' own documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.config.snapshot import TargetSpec
from gateway.core.dialogue import EMPTY_MAPPING

A_MODEL_FALLBACK = "models"
"""A key beside a pin that names other models to answer."""


@dataclass(frozen=True, slots=True)
class Aggregator:
    """One aggregator, and how a target is pinned to one of its providers."""

    name: str
    """LiteLLM's name of it, which stands before the first slash of a target's model."""
    host: str
    pin: Mapping[str, Any] = field(default_factory=dict)
    """The request's fields that pin a call, with ``PROVIDER`` in place of the provider; empty: no field does."""
    pinned_name: re.Pattern[str] | None = None
    """Matches the model of a target that names its provider; None: the name cannot."""
    advice: str = ""
    """What to write at a litellm target; empty: it cannot be pinned."""
    only_host: bool = False
    """Whether the name with any other address means a single server."""

    def pins(self, target: TargetSpec) -> bool:
        """Whether a target is pinned to one provider."""
        if self.pinned_name is not None and self.pinned_name.fullmatch(target.model):
            return True
        return bool(self.pin) and _has_pin(target.options.get("extra_body"), self.pin)


AGGREGATORS = (
    Aggregator(
        name="openrouter",
        host="openrouter.ai",
        pin={"provider": {"only": ["PROVIDER"], "allow_fallbacks": False}},
        advice="options: {extra_body: {provider: {only: [PROVIDER], allow_fallbacks: false}}}",
    ),
    Aggregator(
        name="vercel_ai_gateway",
        host="ai-gateway.vercel.sh",
        pin={"providerOptions": {"gateway": {"only": ["PROVIDER"]}}},
        advice="options: {extra_body: {providerOptions: {gateway: {only: [PROVIDER]}}}}",
    ),
    Aggregator(
        name="huggingface",
        host="router.huggingface.co",
        pinned_name=re.compile(r"huggingface/[^/:]+/[^/:]+/[^/:]+"),
        advice="model: huggingface/PROVIDER/ORGANIZATION/NAME",
        only_host=True,
    ),
    Aggregator(name="helicone", host="ai-gateway.helicone.ai"),
)


def aggregator_of(target: TargetSpec) -> Aggregator | None:
    """The aggregator that a target calls; None if the target is not known to be one."""
    host = urlsplit(target.url).hostname
    prefix = target.model.partition("/")[0] if target.speaks == "litellm" else ""
    for row in AGGREGATORS:
        if row.host == host or (row.name == prefix and not (host and row.only_host)):
            return row
    return None


def unpinned(target: TargetSpec) -> str:
    """What is wrong with a target that must have one provider, and what to write; empty: nothing."""
    row = aggregator_of(target)
    if row is None or (target.speaks == "litellm" and row.pins(target)):
        return ""
    if not row.advice:
        return f"{row.name} may change the provider from call to call and cannot be pinned; name a provider itself"
    way = f"{row.advice} at this target"
    if target.speaks != "litellm":
        way = f"speaks: litellm with {row.advice}" + ("" if row.pinned_name else f" and model: {row.name}/NAME")
    return f"{row.name} may change the provider from call to call; write {way}"


def pin_fields(target: TargetSpec) -> frozenset[str]:
    """The fields that ``options.extra_body`` of a target may have."""
    row = aggregator_of(target)
    return frozenset(row.pin if row is not None else EMPTY_MAPPING)


def _has_pin(given: object, pin: object) -> bool:
    """Whether the given fields contain a pin: its keys and values, with one name in place of ``PROVIDER``."""
    if isinstance(pin, dict):
        if not isinstance(given, dict) or A_MODEL_FALLBACK in given:
            return False
        return all(name in given and _has_pin(given[name], value) for name, value in pin.items())
    if isinstance(pin, list):
        return isinstance(given, list) and len(given) == 1 and isinstance(given[0], str)
    return given is pin
