"""Hypothesis profiles: property tests use fixed examples, so that each run gives the same result.

``pytest --hypothesis-profile=search`` generates new examples; a failing one becomes an ``@example`` of its test.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")
