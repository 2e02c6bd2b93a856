"""Settings of the whole suite: bytecode is written, and property tests use fixed examples.

``pytest --hypothesis-profile=search`` generates new examples; a failing one becomes an ``@example`` of its test.
"""

from __future__ import annotations

import os
import sys

# The tests start about 150 processes. Without bytecode each of them compiles the gateway and its libraries anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from hypothesis import settings  # noqa: E402  (bytecode of this import is written too)

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")
