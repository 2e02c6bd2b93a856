"""What did the releases of the reference do differently? One row a dialect (``specs/lazyllm.md`` 12).

``1.4`` is the reference. ``0.1`` is release 0.1.1, which printed the outputs of the documentation
(``documents/d5``). ``0.1.2`` stands between them: it added ``{system, user}`` instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """One release's ways; the defaults are those of 1.4."""

    name: str
    heading: str = "\n\n### Instruction:\n"
    """What follows the first sentence of the single-turn form."""
    tail: str = "\n"
    """Between tools and user text of the single-turn form."""
    answer_after: str = "### Response:\n"
    """Where the single-turn form's answer begins."""
    chat_tail: str = "\n"
    """What belongs to ``soa`` when a multi-turn answer is looked for."""
    parts: Literal["all", "line", "none"] = "all"
    """How ``{system, user}`` is taken apart: across lines, within one line only, or not known at all."""
    formats: bool = False
    """A dictionary goes through ``str.format`` too, so JSON in an instruction breaks."""
    keyword: str = "extra"
    """How an error spells the extra keys."""
    modern: bool = True
    """From 0.2 on: JSON5, the preamble of tools, tool messages in histories, leading newlines stripped …"""


DIALECTS: Mapping[str, Dialect] = {
    "1.4": Dialect("1.4"),
    "0.1.2": Dialect(
        "0.1.2", heading="\n\n ### Instruction:\n", answer_after="### Response:", chat_tail="", parts="line",
        keyword="extro", modern=False,
    ),
    "0.1": Dialect(
        "0.1", heading="\n\n ### Instruction:\n", tail="", answer_after="### Response:", chat_tail="", parts="none",
        formats=True, keyword="extro", modern=False,
    ),
}  # fmt: skip
CURRENT = DIALECTS["1.4"]
