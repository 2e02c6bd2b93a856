"""A client's trace reaches every provider through LiteLLM."""

from __future__ import annotations

import pytest

from tests.providers.conftest import MODELS
from tests.support.providers.server import Providers
from tests.support.serving import Gateway

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "rojo=1"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", MODELS)
def test_the_request_to_a_provider_has_the_trace_of_its_call(
    served: Gateway, providers: Providers, model: str, stream: bool
) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    for trace in (TRACE, {}):
        before = len(providers.received)
        answer = served.http.post("/v1/chat/completions", json=body, headers=trace)
        assert answer.status_code == 200, answer.text
        # LiteLLM itself asks Ollama what a model can, with requests of its own.
        (sent,) = [one.headers for one in providers.received[before:] if one.path != "api/show"]
        assert {name: sent[name] for name in TRACE if name in sent} == trace
