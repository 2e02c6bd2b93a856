"""What does a newcomer read when the gateway begins to serve?"""

from __future__ import annotations

import pytest

from gateway.config.snapshot import KeySpec, ModelSpec, PolicySpec, ServerSpec, Snapshot
from gateway.server.greeting import greeting
from gateway.server.sockets import PortBusy, bind
from metatemplate.templates.spec import TemplateSpec

MODEL = ModelSpec("m", TemplateSpec("t", "meta"), PolicySpec("default"), ())

PLACES = {  # where it listens, and where it is asked
    "127.0.0.1": "http://127.0.0.1:8000/v1",
    "localhost": "http://localhost:8000/v1",
    "0.0.0.0": "http://127.0.0.1:8000/v1",
    "::1": "http://[::1]:8000/v1",
    "::": "http://[::1]:8000/v1",
    "fd00::7": "http://[fd00::7]:8000/v1",
}


@pytest.mark.parametrize(("host", "url"), PLACES.items(), ids=PLACES)
def test_the_greeting_names_an_address_that_can_be_asked(host: str, url: str) -> None:
    first, _, line = greeting(Snapshot(ServerSpec(host=host), {"m": MODEL}), 8000).splitlines()
    assert first.startswith(f"serving m at {url}  (process ")
    assert line.startswith(f"  curl {url}/chat/completions -H ")
    assert "YOUR_KEY" not in line


def test_the_line_to_try_asks_for_a_key_where_one_is_needed() -> None:
    snapshot = Snapshot(ServerSpec(), {"m": MODEL}, keys=(KeySpec("ci", "0" * 64),))
    assert " -H 'authorization: Bearer YOUR_KEY' -d " in greeting(snapshot, 8000)


def test_an_address_of_another_machine_is_named_in_brackets() -> None:
    with pytest.raises(PortBusy, match=r"cannot listen on \[2001:db8::1\]:8000 \("):
        bind("2001:db8::1", 8000)


@pytest.mark.parametrize(("admin", "noted"), [("0.0.0.0:9464", True), ("[::]:9464", True), ("127.0.0.1:9464", False)])
def test_an_admin_listener_that_others_reach_is_noted(admin: str, noted: bool) -> None:
    said = greeting(Snapshot(ServerSpec(admin=admin), {"m": MODEL}), 8000)
    assert (f"note: server.admin {admin} serves metrics and health without a key" in said) is noted
