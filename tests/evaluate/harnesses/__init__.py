"""Real harnesses, unmodified, in ``gateway with``."""

import pytest

pytest.register_assert_rewrite("tests.evaluate.harnesses.differences")
