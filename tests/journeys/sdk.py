"""OpenAI's SDK for Python as a client of a gateway."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import openai
from openai import OpenAI

from tests.support.serving import Gateway
from tests.support.world import World


def connect(served: Gateway, key: str = "none", retries: int = 0) -> OpenAI:
    """A client that ignores the machine's proxy settings."""
    http = openai.DefaultHttpxClient(trust_env=False, verify=False)
    return OpenAI(base_url=served.url, api_key=key, max_retries=retries, http_client=http, timeout=60)


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


class SdkWorld(World):
    """A gateway, the upstream of its models, and a client of the gateway."""

    @cached_property
    def client(self) -> OpenAI:
        """A client on the connections of ``served.http``, which end with the gateway."""
        return OpenAI(base_url=self.served.url, api_key="none", max_retries=0, http_client=self.served.http)
