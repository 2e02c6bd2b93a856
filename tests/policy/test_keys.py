"""Client keys and the models that each key may use."""

from __future__ import annotations

import hashlib

import pytest

from gateway.config.snapshot import KeySpec
from gateway.core.caller import ANONYMOUS
from gateway.core.errors import InvalidApiKey
from gateway.policy.access.api_keys import Keyring

EXPIRY = 1000.0


def spec(key: str, **more: object) -> KeySpec:
    return KeySpec(key, hashlib.sha256(key.encode()).hexdigest(), **more)  # type: ignore[arg-type]


RING = Keyring((spec("gk_a"), spec("gk_b", models=("x-*", "y")), spec("gk_c", expires=EXPIRY)), now=lambda: 999.9)


@pytest.mark.parametrize("header", [None, "", "Bearer x", "Basic y", "Bearer \udcff"])
def test_without_configured_keys_every_request_is_accepted(header: str | None) -> None:
    assert Keyring(()).authenticate(header) is ANONYMOUS


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Bearer gk_a", "gk_a"),
        ("bearer gk_b", "gk_b"),
        ("BEARER   gk_c ", "gk_c"),
    ],
)
def test_a_key_is_found_by_its_digest(header: str, name: str) -> None:
    assert RING.authenticate(header).key == name


WRONG = (
    None,
    "",
    "Bearer",
    "Bearer ",
    "gk_a",
    "Basic gk_a",
    "Token gk_a",
    "Bearer gk_A",
    "Bearer gk_a,gk_b",
    "Bearergk_a",
    "Bearer gk\xe9",
    "Bearer \udcff",
    "Bearer " + "x" * 100_000,
)


@pytest.mark.parametrize("header", WRONG, ids=lambda header: repr(header)[:20])
def test_every_other_header_gets_the_same_refusal(header: str | None) -> None:
    with pytest.raises(InvalidApiKey) as raised:
        RING.authenticate(header)
    assert raised.value.message.startswith("the request has no valid client key; send a key of this gateway")
    assert raised.value.status == 401


@pytest.mark.parametrize("now", [EXPIRY, EXPIRY + 1])
def test_a_key_ends_at_its_expiry(now: float) -> None:
    ring = Keyring((spec("gk_c", expires=EXPIRY),), now=lambda: now)
    with pytest.raises(InvalidApiKey) as raised:
        ring.authenticate("Bearer gk_c")
    assert raised.value.message == "this client key has expired; ask the operator for a new one"
    assert "the client key gk_c expired at 1970-01-01T00:16:40Z; set a later expires" in raised.value.log_message
    with pytest.raises(InvalidApiKey, match="the request has no valid client key"):
        ring.authenticate("Basic gk_c")


ALLOWED: dict[str, tuple[tuple[str, ...], dict[str, bool]]] = {
    "all": (("*",), {"a": True, "org/a": True}),
    "one": (("a",), {"a": True, "A": False, "ab": False}),
    "a family": (("x-*", "y?"), {"x-1": True, "x-": True, "xx-1": False, "y1": True, "y": False}),
    "a set": (("m[12]",), {"m1": True, "m3": False, "m[12]": False}),
    "none": ((), {"a": False}),
}


@pytest.mark.parametrize(("patterns", "models"), ALLOWED.values(), ids=ALLOWED)
def test_a_key_allows_the_models_that_match_its_patterns(patterns: tuple[str, ...], models: dict[str, bool]) -> None:
    ring = Keyring((spec("k", models=patterns), spec("l", models=("other",))), models)
    one, other = ring.authenticate("Bearer k"), ring.authenticate("Bearer l")
    assert {model: one.may_use(model) for model in models} == models
    assert not any(other.may_use(model) for model in models)
    assert all(ANONYMOUS.may_use(model) for model in models)
