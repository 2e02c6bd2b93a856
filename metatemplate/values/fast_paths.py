"""The switch of all fast paths.

A fast path is a second implementation of a function, named ``fast_…``. The fast path handles some common cases and
leaves all others to the general implementation. So switching fast paths off changes the speed and nothing else.
"""

from __future__ import annotations

import os

ENABLED = os.environ.get("GATEWAY_FAST_PATHS", "1") != "0"
"""False if ``GATEWAY_FAST_PATHS=0`` was set when the process started. The tests pass in both cases."""
