"""The fixtures that many modules share: a gateway of their own, alone or with the upstream of its models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.serving import Files, Gateway, gateway
from tests.support.upstream.server import FaultyUpstream

HELLO = {"hello.yaml": "[Hello, {finish: stop}]"}
"""The script of a target that answers ``Hello``."""


@dataclass(frozen=True)
class World:
    """A gateway and the upstream of its models."""

    served: Gateway
    up: FaultyUpstream

    def sent(self) -> Any:
        """The last body that the upstream received."""
        return self.up.requests[-1].body


def gateway_fixture(config: str, files: Files) -> Any:
    """A module's fixture: a ``Gateway`` that serves ``config`` in a folder with ``files``."""

    @pytest.fixture(scope="module")
    def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
        with gateway(tmp_path_factory.mktemp("served"), config, files=files) as one:
            yield one

    return served


def world_fixture(
    config: Callable[[FaultyUpstream], str], files: Files, world: Callable[[Gateway, FaultyUpstream], Any] = World
) -> Any:
    """A module's fixture: ``world`` of an upstream and the gateway that serves the upstream's ``config``."""

    @pytest.fixture(scope="module")
    def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with FaultyUpstream() as up, gateway(tmp_path_factory.mktemp("world"), config(up), files=files) as served:
            yield world(served, up)

    return made


def key_file(keys: Mapping[str, str]) -> str:
    """A key file of ``keys``: a name, which is the key too, and the key's settings, such as ``models: [m]``."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in keys}
    return "".join(f"{name}: {{sha256: {digests[name]}, {settings}}}\n" for name, settings in keys.items())
