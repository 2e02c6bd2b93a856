"""The LiteLLM door, against a real server: right answers, guarded ends, errors by cause, upstreams closed.

All in one event loop, as LiteLLM keeps clients per loop; the SDK's import takes seconds, so it happens once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import assemble, open_shared_resources
from gateway.backend.litellm.backend import LiteLLMBackend
from gateway.backend.litellm.sdk import load
from gateway.config.load import load as load_config
from gateway.core.caller import Caller
from gateway.core.errors import ConfigError, MediaNotAllowed
from gateway.core.exchange import Exchange
from gateway.telemetry.metrics import Metrics
from gateway.wire.requests import read_chat
from metatemplate.values.events import Document
from tests.backend.ask import Heard, chat_exchange, exchange, listen, target
from tests.support.events import each_event
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream, refused_url

if importlib.util.find_spec("litellm") is None:  # imported by the gateway only: on its own it asks the network
    pytest.skip("the litellm extra is not installed", allow_module_level=True)

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


def backend(url: str, **changes: Any) -> LiteLLMBackend:
    return LiteLLMBackend(target(url, **{"speaks": "litellm", "model": "openai/tiny", **changes}))


@pytest.fixture(scope="module")
def runner() -> Any:
    load()
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def ask(runner: asyncio.Runner) -> Callable[[str, Exchange], Heard]:
    return lambda url, asked: runner.run(listen(backend(url), asked))


Ask = Callable[[str, Exchange], Heard]


@BOTH
def test_a_chat_through_litellm_is_the_same_chat(up: FaultyUpstream, ask: Ask, stream: bool) -> None:
    heard = ask(up.url("ok"), chat_exchange(stream, params={"temperature": 0, "seed": 7}, stops=("<eob>",)))
    assert (heard.text(), heard.finishes, heard.code) == (TEXT, {0: "stop"}, None)
    assert heard.usage is not None
    assert (heard.usage.prompt, heard.usage.completion, heard.usage.source) == (7, 5, "upstream")
    body = up.requests[-1].body
    assert (body["model"], body["temperature"], body["seed"], body["stop"]) == ("tiny", 0, 7, ["<eob>"])
    assert up.requests[-1].headers["authorization"] == "Bearer sk-op"


def seen_image(detail: str = "auto", url: str = "https://example.com/a.png") -> tuple[dict[str, Any], ...]:
    part = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    return ({"role": "user", "content": [{"type": "text", "text": "see"}, part]},)


def test_the_address_of_an_image_reaches_the_provider(up: FaultyUpstream, ask: Ask) -> None:
    heard = ask(up.url("ok"), chat_exchange(messages=seen_image()))
    assert heard.code is None
    assert up.requests[-1].body["messages"] == list(seen_image())


PROVIDERS = {
    "a provider whose images LiteLLM downloads": "bedrock/anthropic.claude-3-sonnet-20240229-v1:0",
    "another one": "gemini/gemini-1.5-pro",
    "a provider that gets no image at all": "deepseek/deepseek-chat",
}


@pytest.mark.parametrize("model", PROVIDERS.values(), ids=PROVIDERS)
def test_an_address_is_refused_where_litellm_would_download_it(tmp_path: Path, model: str) -> None:
    (tmp_path / "gateway.yaml").write_text(
        f"models:\n  m:\n    template: chat\n    targets: [{{speaks: litellm, model: {model!r}}}]\n"
    )
    stack = assemble(load_config(tmp_path / "gateway.yaml", {}), open_shared_resources(Metrics()))
    call = read_chat({"model": "m", "messages": list(seen_image())}, request_id="r")
    assert call.dialogue is not None
    media = stack.routes["m"].media
    assert media is not None
    with pytest.raises(MediaNotAllowed, match="data: URI") as refused:
        media.check(call.dialogue.messages)
    assert refused.value.param == "messages[0].content[1].image_url"


def test_a_token_count_of_an_image_that_is_not_fetched_breaks_no_stream(up: FaultyUpstream, ask: Ask) -> None:
    heard = ask(up.url("quirk-no-usage"), chat_exchange(messages=seen_image("high")))
    assert (heard.text(), heard.finishes) == (TEXT, {0: "stop"})


def test_litellm_fetches_no_address_for_itself(runner: asyncio.Runner) -> None:
    from litellm.litellm_core_utils.url_utils import async_safe_get

    with pytest.raises(MediaNotAllowed):
        runner.run(async_safe_get(load().module_level_aclient, "https://example.com/"))


def test_embeddings_go_through(up: FaultyUpstream, ask: Ask) -> None:
    heard = ask(up.url("ok"), exchange(False, endpoint="embeddings", prompts=(), params={"input": ["a"]}))
    (document,) = [event for event in heard.events if isinstance(event, Document)]
    assert document.body["data"][0]["embedding"] == [0.25, -0.5]


def test_the_request_for_embeddings_has_the_trace_of_its_call(up: FaultyUpstream, ask: Ask) -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "rojo=1"}
    asked = exchange(False, endpoint="embeddings", prompts=(), params={"input": ["a"]}, caller=Caller(trace=trace))
    assert ask(up.url("ok"), asked).code is None
    assert {name: up.requests[-1].headers.get(name) for name in trace} == trace


@BOTH
def test_more_stops_than_an_api_takes_are_left_to_the_gateway(up: FaultyUpstream, ask: Ask, stream: bool) -> None:
    heard = ask(up.url("ok"), chat_exchange(stream, stops=tuple("12345678")))
    assert up.requests[-1].body["stop"] == list("1234")
    assert heard.begun.notices == ("stops_enforced_here: 4",)


@BOTH
@pytest.mark.parametrize("name", ["openrouter", "vercel_ai_gateway"])
def test_an_aggregator_gets_its_pin_and_the_answer_names_its_provider(
    up: FaultyUpstream, runner: asyncio.Runner, name: str, stream: bool
) -> None:
    pin = {"provider": {"only": ["deepinfra"], "allow_fallbacks": False}}
    asked = backend(up.url("quirk-provider"), model=f"{name}/a/tiny", options={"extra_body": pin})
    heard = runner.run(listen(asked, chat_exchange(stream)))
    assert (heard.text(), heard.code) == (TEXT, None)
    assert heard.begun.notices == ("provider: Deep? Infra",)
    assert up.requests[-1].body["provider"] == pin["provider"]


def test_stream_options_of_an_engine_are_refused_by_name(up: FaultyUpstream, ask: Ask) -> None:
    before = up.request_count
    error = ask(up.url("ok"), chat_exchange(stream_options={"include_obfuscation": True})).error
    assert error is not None
    assert (error.code, error.param) == ("unsupported_parameter", "stream_options.include_obfuscation")
    assert up.request_count == before


STREAMS = {  # mode: error code; LiteLLM alone makes a success of most of them
    "no-finish": "upstream_incomplete",
    "eof-no-finish": "upstream_incomplete",
    "quirk-cut-stream": "upstream_incomplete",
    "done-only": "upstream_incomplete",
    "empty-stream": "upstream_incomplete",
    "200-html": "upstream_incomplete",
    "200-empty": "upstream_incomplete",
    "200-truncated": "upstream_incomplete",
    "drop-midstream": "upstream_disconnected",
    "reset-midstream": "upstream_disconnected",
    "error-midstream": "upstream_error",
    "error-event": "upstream_incomplete",
    "flaky-first-chunk": "upstream_overloaded",
    "malformed-sse": "upstream_invalid_response",
}


@pytest.mark.parametrize("mode", STREAMS)
def test_a_broken_stream_is_never_a_success(up: FaultyUpstream, ask: Ask, mode: str) -> None:
    heard = ask(up.url(mode), chat_exchange())
    assert heard.code == STREAMS[mode]
    assert not heard.finishes


ERRORS = {
    "early-close": "upstream_disconnected",
    "reset": "upstream_disconnected",
    "bad-status-line": "upstream_invalid_response",
    "redirect": "upstream_redirect",
    "500": "upstream_error",
    "html-502": "upstream_error",
    "503": "upstream_overloaded",
    "529": "upstream_overloaded",
    "401": "upstream_auth_failed",
    "403": "upstream_auth_failed",
    "404": "upstream_model_missing",
    "402": "upstream_quota_exhausted",
    "429": "upstream_rate_limited",
    "429-quota": "upstream_quota_exhausted",
    "400": "upstream_rejected_request",
    "400-context": "context_length_exceeded",
    "400-filter": "content_filter",
    "quirk-detail": "upstream_rejected_request",
    "200-error-body": "upstream_overloaded",
    "200-array": "upstream_invalid_response",
    "200-truncated": "upstream_invalid_response",
}


@pytest.mark.parametrize("mode", ERRORS)
def test_an_error_has_our_name_after_one_attempt(up: FaultyUpstream, ask: Ask, mode: str) -> None:
    before = up.request_count
    heard = ask(up.url(mode), chat_exchange(stream=False))
    assert heard.code == ERRORS[mode]
    assert up.request_count == before + 1
    assert up.control_hits == 0


def test_a_refused_connection_is_unreachable(ask: Ask) -> None:
    assert ask(refused_url(), chat_exchange()).code == "upstream_unreachable"


def test_retry_after_is_kept(up: FaultyUpstream, ask: Ask) -> None:
    error = ask(up.url("429-retry-after", value=7), chat_exchange()).error
    assert error is not None
    assert error.retry_after == 7.0


def test_counts_that_litellm_made_up_are_called_estimated(up: FaultyUpstream, ask: Ask) -> None:
    usage = ask(up.url("quirk-no-usage"), chat_exchange()).usage
    assert usage is None or usage.source == "estimated"
    assert ask(up.url("quirk-no-usage"), chat_exchange(stream=False)).usage is None


@pytest.mark.parametrize("name", ["top_k", "made_up", "api_base", "mock_response"])
def test_a_field_that_would_be_dropped_is_refused_by_name(up: FaultyUpstream, ask: Ask, name: str) -> None:
    before = up.request_count
    error = ask(up.url("ok"), chat_exchange(params={name: 1})).error
    assert error is not None
    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert up.request_count == before


def test_a_field_the_provider_does_not_know_is_refused_by_name(runner: asyncio.Runner, up: FaultyUpstream) -> None:
    made = backend(up.url("ok"), model="anthropic/some-model")
    error = runner.run(listen(made, chat_exchange(params={"logit_bias": {"5": 1}}))).error
    assert error is not None
    assert (error.code, error.param) == ("unsupported_parameter", "logit_bias")


FUNCTION = {"type": "function", "function": {"name": "weather"}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("cohere_chat/some-model", {"tools": TOOLS, "tool_choice": "none"}),
        ("mistral/some-model", {"tools": TOOLS, "tool_choice": FUNCTION}),
        ("meta_llama/some-model", {"response_format": {"type": "json_object"}}),
    ],
    ids=["none", "function", "json_object"],
)
@pytest.mark.filterwarnings("ignore:::pydantic._internal._generate_schema")  # of modules that LiteLLM imports late
def test_a_value_that_litellm_leaves_out_is_refused_at_any_provider(
    runner: asyncio.Runner, up: FaultyUpstream, model: str, params: dict[str, Any]
) -> None:
    before = up.request_count
    error = runner.run(listen(backend(up.url("ok"), model=model), chat_exchange(params=params))).error
    assert error is not None
    assert (error.code, error.param) == ("unsupported_parameter", list(params)[-1])
    assert up.request_count == before


def test_a_model_without_a_provider_refuses_the_configuration() -> None:
    with pytest.raises(ConfigError, match="provider/model"):
        backend("", model="tiny")


def test_a_raw_prompt_is_refused(up: FaultyUpstream, ask: Ask) -> None:
    assert ask(up.url("ok"), exchange()).code == "unsupported_parameter"


async def _take(asked: Exchange, url: str, count: int) -> None:
    async with backend(url).open(asked) as events:
        async for _ in each_event(events):
            count -= 1
            if count <= 0:
                return


async def _cancelled(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.15)
    task.cancel()
    await asyncio.wait({task})


LEAVING = {  # mode, events to take before leaving (None: cancelled while waiting), stream
    "before the headers": ("hang-headers", None, True),
    "before the headers, json": ("hang-headers", None, False),
    "at the first event": ("never-ends", 1, True),
    "midstream": ("never-ends", 5, True),
    "in a stall": ("stall-midstream", None, True),
}


@pytest.mark.parametrize("name", LEAVING)
def test_leaving_closes_the_upstream(runner: asyncio.Runner, up: FaultyUpstream, name: str) -> None:
    mode, count, stream = LEAVING[name]
    early = len(up.closed_early)

    async def run() -> float:
        work = _take(chat_exchange(stream), up.url(mode), 99 if count is None else count)
        await (_cancelled(work) if count is None else work)
        leaving = time.monotonic()
        await asyncio.to_thread(up.wait, lambda: len(up.closed_early) > early)
        return up.closed_early[-1] - leaving

    assert runner.run(run()) < 20


def test_importing_the_backend_does_not_import_the_sdk() -> None:
    code = "import sys, gateway.backend.litellm.backend; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_of_a_call_goes_to_loggers(up: FaultyUpstream, runner: asyncio.Runner) -> None:
    """The SDK's own calls do, which shows that this logger listens."""
    litellm = load()
    from litellm.integrations.custom_logger import CustomLogger

    class Logger(CustomLogger):
        heard = 0
        first: asyncio.Event

        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            self.heard += 1
            self.first.set()

    async def run() -> int:
        logger.first = asyncio.Event()
        litellm.callbacks = [logger]
        try:
            ours = await asyncio.create_task(listen(backend(up.url("ok")), chat_exchange(False)))
            assert ours.code is None
            theirs = litellm.acompletion(
                model="openai/tiny", api_base=up.url("ok"), api_key="none", messages=[{"role": "user", "content": "a"}]
            )
            await asyncio.create_task(theirs, context=Context())  # the tests before this one ran in the runner's own
            await asyncio.wait_for(logger.first.wait(), 60)  # the SDK's own; ours would have come before it
            await asyncio.sleep(0.2)
            return logger.heard
        finally:
            litellm.callbacks = []

    logger = Logger()
    assert runner.run(run()) == 1
