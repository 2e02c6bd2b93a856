"""The begin-of-sequence token (BOS): exactly one, written by the template or by the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from gateway.core.exchange import Exchange, RawPrompt
from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class BosRule:
    """The changes to a request that make the model read exactly one BOS."""

    fields: Mapping[str, bool]
    """Fields for the request body: the engine's BOS switch, if the engine has a switch."""
    strip: str = ""
    """The BOS to remove from the start of each string prompt, because the engine adds a BOS."""
    notices: tuple[str, ...] = ()


UNCHANGED = BosRule(fields={})
UNVERIFIED = BosRule(fields={}, notices=("bos: not verified; set adds_bos of the target to true or false",))
MISSING = BosRule(fields={}, notices=("bos: missing, because neither the engine nor the template adds a BOS",))


# Rows: the template's ``bos``. Columns: the engine.
#               has a switch      adds a BOS        adds none         not known
#   text        switch off        strip the text    unchanged         unverified
#   engine      switch on         unchanged         missing           unverified
#   none        unchanged
def bos_rule(exchange: Exchange, switch: str | None, adds_bos: bool | None) -> BosRule:
    """Return the rule for one exchange. Prompts of token ids are never changed: a client's switch has only a notice.

    ``switch``: the field that turns the engine's BOS off and on; None: no such field. ``adds_bos``: whether the engine
    adds a BOS by default; None: not known. Notices that begin with ``bos:`` are counted as anomalies.
    """
    if exchange.bos == "none":
        return UNCHANGED
    has_text, wanted = str in map(type, exchange.prompts), exchange.bos == "engine"
    if switch is not None:
        conflict = exchange.params.get(switch, wanted) != wanted
        return _switched(switch, wanted, conflict) if conflict or has_text else UNCHANGED
    if not has_text:
        return UNCHANGED
    if adds_bos is None:
        return UNVERIFIED
    if wanted:
        return UNCHANGED if adds_bos else MISSING
    bos = exchange.bos_text
    if adds_bos and bos and any(isinstance(prompt, str) and prompt.startswith(bos) for prompt in exchange.prompts):
        return BosRule({}, bos, ("bos_stripped: the engine adds the BOS",))
    return UNCHANGED


@cache
def _switched(switch: str, wanted: bool, conflict: bool) -> BosRule:
    """Return the rule for an engine with a BOS switch. ``conflict``: the client sent the opposite value."""
    return BosRule({switch: wanted}, "", (f"bos: {switch} is set by the template",) if conflict else ())


def without_bos(rule: BosRule, prompts: Sequence[RawPrompt]) -> Sequence[RawPrompt]:
    """Return the prompts without the BOS that the engine would add again."""
    if not rule.strip:
        return prompts
    return [prompt.removeprefix(rule.strip) if isinstance(prompt, str) else prompt for prompt in prompts]
