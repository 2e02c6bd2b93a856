"""What holds for every test: frozen values are guarded, as the type checker sees them, and examples are the same twice.

A suite that judges a change must say the same of it each time, so property tests take fixed examples.
``pytest --hypothesis-profile=search`` looks for new ones; what it finds becomes an ``@example`` of its test.
"""

from __future__ import annotations

from hypothesis import settings

from gateway.core import frozen

frozen.ENFORCED = True

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")
