"""Values compare, hash and print alike with fast paths on and off; off, their fields are guarded at run time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
from gateway.core.dialogue import Message
from gateway.core.events import Delta, Usage
one, same = Delta(0, "a"), Delta(0, "a")
assert one == same and hash(one) == hash(same) and one != Delta(0, "b")
assert repr(one) == "Delta(index=0, text='a', logprobs=None, fields={}, extras={})"
assert not hasattr(one, "__dict__")
match Usage(1, 2):
    case Usage(prompt=1, completion=2): pass
try:
    one.text = "changed"
except AttributeError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(("switch", "error"), [("0", "FrozenInstanceError"), ("1", "")], ids=["off", "on"])
def test_a_value_is_the_same_with_fast_paths_on_and_off(switch: str, error: str) -> None:
    env = {**os.environ, "GATEWAY_FAST_PATHS": switch}
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=env)
    assert told.stdout.strip() == error
