"""Aggregators: services that send a call to one of several providers of a model, and may change the provider.

Providers differ in precision, context length, templates and sampling, so scores of two calls may not be comparable.
To add an aggregator, add a row here. The names of the request fields come from the aggregators' documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.config.snapshot import TargetSpec
from metatemplate.values.dialogue import EMPTY_MAPPING

A_MODEL_FALLBACK = "models"
"""A request field that names other models for the answer. With this field, a target is not pinned."""
AUTO = "auto"
"""A part of a model name for which an aggregator chooses the model or the provider of each call."""


@dataclass(frozen=True, slots=True)
class Aggregator:
    """One aggregator, and how a target is pinned to one of its providers."""

    name: str
    """LiteLLM's name of the aggregator. A target's model has this name before its first slash."""
    host: str
    """The host of the aggregator. The aggregator has all subdomains of this host too."""
    pin: Mapping[str, Any] = field(default_factory=dict)
    """The request fields that pin a call to the provider ``PROVIDER``. Empty if no field can pin a call."""
    pinned_name: re.Pattern[str] | None = None
    """Matches a model name that contains the provider. None if a model name cannot contain the provider."""
    advice: str = ""
    """The setting that pins a litellm target, for messages. Empty if a target cannot be pinned."""
    only_host: bool = False
    """True if a target with this name and another host calls a single server and not the aggregator."""

    def pins(self, target: TargetSpec) -> bool:
        """Return whether a target is pinned to one provider."""
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
    """Return the aggregator that a target calls, or None if the target calls no known aggregator."""
    host = (urlsplit(target.url).hostname or "").rstrip(".")
    prefix = target.model.partition("/")[0] if target.speaks == "litellm" else ""
    for row in AGGREGATORS:
        if f".{host}".endswith(f".{row.host}") or (row.name == prefix and not (host and row.only_host)):
            return row
    return None


def unpinned(target: TargetSpec) -> str:
    """Return the message for a target that is not pinned to one provider. Empty if the target has one provider."""
    row = aggregator_of(target)
    if row is None:
        return ""
    if target.speaks == "litellm" and row.pins(target):
        if AUTO not in re.split("[/:]", target.model):
            return ""
        return f"{row.name} makes its own choice for {AUTO} in {target.model}; name one model and one provider"
    if not row.advice:
        return (
            f"{row.name} may change the provider from call to call and cannot be pinned; use a target that calls the "
            "provider directly"
        )
    way = f"{row.advice} at this target"
    if target.speaks != "litellm":
        way = f"speaks: litellm with {row.advice}" + ("" if row.pinned_name else f" and model: {row.name}/NAME")
    return f"{row.name} may change the provider from call to call; write {way}"


def pin_fields(target: TargetSpec) -> frozenset[str]:
    """Return the names of the fields that ``options.extra_body`` of a target may contain."""
    row = aggregator_of(target)
    return frozenset(row.pin if row is not None else EMPTY_MAPPING)


def _has_pin(given: object, pin: object) -> bool:
    """Return whether the given fields contain all keys and values of a pin. Any one name matches ``[PROVIDER]``."""
    if isinstance(pin, dict):
        if not isinstance(given, dict) or A_MODEL_FALLBACK in given:
            return False
        return all(name in given and _has_pin(given[name], value) for name, value in pin.items())
    if isinstance(pin, list):
        return isinstance(given, list) and len(given) == 1 and isinstance(given[0], str)
    return given is pin
