"""Who writes the begin-of-sequence token? The template's word, in what an engine can be told (design 4.3)."""

from __future__ import annotations

from gateway.core.exchange import Exchange, RawPrompt
from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class BosRule:
    """What has to be done so that the model sees exactly one BOS."""

    fields: dict[str, bool]
    """Goes into the body: the engine's switch, where it has one."""
    strip: str = ""
    """Is taken from the start of each string prompt, because the engine adds it again."""
    notices: tuple[str, ...] = ()


# Who writes the BOS / does the engine add one:
#               has a switch      adds it           adds none         not known
#   text        switch off        strip the text    leave             leave, and say so
#   engine      switch on         leave             say so            leave, and say so
#   none        the engine's habit stands
def bos_rule(exchange: Exchange, switch: str | None, adds_bos: bool | None) -> BosRule:
    """The rule for one exchange; token ids are never touched.

    ``switch``: the field that turns the engine's BOS off and on. ``adds_bos``: its habit; None: not known.
    A notice that begins with ``bos:`` is counted as an anomaly; a BOS taken off because it comes again is none.
    """
    if exchange.bos == "none" or not any(isinstance(prompt, str) for prompt in exchange.prompts):
        return BosRule({})
    if switch is not None:
        wanted = exchange.bos == "engine"
        asked = exchange.params.get(switch, wanted)
        notices = () if asked == wanted else (f"bos: {switch} is the template's to set",)
        return BosRule({switch: wanted}, notices=notices)
    if adds_bos is None:
        return BosRule({}, notices=("bos: not verified, the target does not say whether it adds one (adds_bos)",))
    if exchange.bos == "text":
        return _stripping(exchange) if adds_bos else BosRule({})
    return BosRule({}) if adds_bos else BosRule({}, notices=("bos: missing, the template expects it from the engine",))


def without_bos(prompt: RawPrompt, rule: BosRule) -> str | list[int]:
    """The prompt as it goes up."""
    return prompt.removeprefix(rule.strip) if isinstance(prompt, str) else list(prompt)


def _stripping(exchange: Exchange) -> BosRule:
    bos = exchange.bos_text
    if not bos or not any(isinstance(prompt, str) and prompt.startswith(bos) for prompt in exchange.prompts):
        return BosRule({})
    return BosRule({}, strip=bos, notices=("bos_stripped: the engine adds it",))
