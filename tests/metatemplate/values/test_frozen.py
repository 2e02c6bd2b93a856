"""Values of a call compare, hash and print as frozen dataclasses do."""

from __future__ import annotations

from metatemplate.values.events import Delta, Usage


def test_a_value_compares_hashes_and_prints_as_a_frozen_dataclass() -> None:
    one, same = Delta(0, "a"), Delta(0, "a")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Delta(0, "b")
    assert repr(one) == "Delta(index=0, text='a', logprobs=None, fields={}, extras={})"
    assert not hasattr(one, "__dict__")
    match Usage(1, 2):
        case Usage(prompt=1, completion=2):
            return
    raise AssertionError("the fields are not positional")
