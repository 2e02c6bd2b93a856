"""The switch of all fast paths.

A fast path is a second implementation of something, named ``fast_…`` beside its general form. It handles the cases that
it knows completely and leaves all others to the general form, so switching it off changes speed and nothing else.
"""

from __future__ import annotations

import os

ENABLED = os.environ.get("GATEWAY_FAST_PATHS", "1") != "0"
"""False if ``GATEWAY_FAST_PATHS=0`` was set when the process started. The test suite runs both ways."""
