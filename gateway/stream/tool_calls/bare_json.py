"""``json``: the answer is ``{"name": …, "arguments": {…}}``, or a list of such objects, and nothing stands before it.

For models without a marker of their own. Several objects may follow each other, with blanks between them. Text after
them is content. An answer in JSON that is no call is passed on when its last bracket has come.
"""

from __future__ import annotations

from gateway.stream.tool_calls.base import Format
from gateway.stream.tool_calls.values import Value, calls_in

BARE_JSON = Format(Value, calls_in, openers="{[", telling=('"name"',))
