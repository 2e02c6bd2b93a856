"""What is left of a frozen value when nobody guards it? All but the guard."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from gateway.core.events import Delta

UNGUARDED = """
from gateway.core.dialogue import Message
from gateway.core.events import Delta, Usage
one, same = Delta(0, "a"), Delta(0, "a")
assert one == same and hash(one) == hash(same) and one != Delta(0, "b")
assert repr(one) == "Delta(index=0, text='a', logprobs=None, fields={}, extras={})"
assert not hasattr(one, "__dict__")
match Usage(1, 2):
    case Usage(prompt=1, completion=2): print("alike")
"""


def test_the_tests_run_with_guarded_fields() -> None:
    with pytest.raises(FrozenInstanceError):
        Delta(0).text = "changed"  # type: ignore[misc]


def test_without_the_guard_a_value_compares_hashes_and_prints_the_same() -> None:
    told = subprocess.run([sys.executable, "-c", UNGUARDED], capture_output=True, text=True, check=True)
    assert told.stdout == "alike\n"
