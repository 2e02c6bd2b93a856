"""Settings of all tests: property tests take fixed examples, so that each run gives the same result.

``pytest --hypothesis-profile=search`` looks for new ones; what it finds becomes an ``@example`` of its test.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")
