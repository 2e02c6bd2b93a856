"""``json``: the answer is ``{"name": …, "arguments": {…}}`` or a list of such objects, with nothing before it.

For models without a marker of their own. Several objects may follow each other, with white space between them. Text
behind them is content. An answer in JSON without calls goes out when its last bracket has come.
"""

from __future__ import annotations

from collections.abc import Generator

from gateway.stream.tool_calls.format import Format
from gateway.stream.tool_calls.json_calls import calls_in
from gateway.stream.tool_calls.region import Region, skip_value


def _rule(region: Region) -> Generator[None, None, int]:
    yield from skip_value(region)
    return region.offset


BARE_JSON = Format(rule=_rule, read=calls_in, openers="{[", failure_signs=('"name"',))
