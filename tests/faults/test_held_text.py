"""The upstream fails while text is held for a tool call, a reasoning end or a stop: no text is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.client import Response, send_chat
from tests.faults.conftest import FILES, TEMPLATE, model
from tests.support.serving import Gateway, gateway
from tests.support.upstream.server import FaultyUpstream

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ARGUMENTS = '{"a": 1}'
CALL = f'<tool_call>\n{{"name": "add", "arguments": {ARGUMENTS}}}\n</tool_call>'
READS = """
tools:
  parser: hermes
  declare: {turn: first_user, place: before_text, each: function}
thinking: {begin: "<think>", end: "</think>"}
"""

HOW = {  # the fault: the code of the error event
    "drop": "upstream_disconnected",
    "reset": "upstream_disconnected",
    "error": "upstream_error",
    "end": "upstream_incomplete",
    "stall": "upstream_idle_timeout",
}
TEXTS = {  # name: (text of the model, content, reasoning, arguments of tool calls)
    "nothing held": ("I add.", "I add.", "", []),
    "a marker begun": ("I add.\n<tool", "I add.\n<tool", "", []),
    "nothing but that": ("<tool", "<tool", "", []),
    "a marker": ("I add.\n<tool_call>", "I add.\n<tool_call>", "", []),
    "a call begun": (f"I add.\n{CALL[:40]}", f"I add.\n{CALL[:40]}", "", []),
    "nothing but a call begun": (CALL[:40], CALL[:40], "", []),
    "a call but for its end marker": (CALL.removesuffix("</tool_call>"), "", "", [ARGUMENTS]),
    "a call's end marker begun": (CALL[:-9], CALL[:-9], "", []),
    "a call": (CALL, "", "", [ARGUMENTS]),
    "a second call begun": (f"{CALL}\n{CALL[:30]}", f"\n{CALL[:30]}", "", [ARGUMENTS]),
    "blanks behind a call": (f"{CALL}\n\n", "", "", [ARGUMENTS]),
    "a stop begun": ("I add.<eo", "I add.<eo", "", []),
    "a stop begun in a call": (f"{CALL[:30]}<e", f"{CALL[:30]}<e", "", []),
    "a thought begun": ("<thi", "<thi", "", []),
    "a thought's end begun": ("<think>1 and</th", "", "1 and</th", []),
}
SLOW = {"nothing but that", "a call begun", "a stop begun in a call", "a thought's end begun"}
"""The text before an upstream stops sending; each entry takes the idle timeout."""
ROWS = [(how, name) for how in HOW for name in TEXTS if how != "stall" or name in SLOW]


def names(how: str, name: str) -> str:
    """The name of the model with this text and fault."""
    return f"{how}-{name}".translate({32: "-", 39: ""})


def configure(up: FaultyUpstream) -> str:
    """A gateway.yaml with a model for each row, and one without parsing, under ``plain``, for each fault."""
    config = "models:\n"
    for how, name in ROWS:
        url = up.url("text-then-fault", how=how, text=TEXTS[name][0])
        policy = "short-idle" if how == "stall" else "patient"
        config += model(names(how, name), url, template="reads", policy=policy)
        config += model("plain-" + names(how, name), url, policy=policy)
        config += model("single-" + names(how, name), url, template="reads", extra=", engine: llamacpp", policy=policy)
    return config


@pytest.fixture(scope="module")
def broken(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    files = {**FILES, "meta_templates/reads.yaml": TEMPLATE + READS}
    with gateway(tmp_path_factory.mktemp("broken"), configure(up), files=files) as served:
        yield served


@pytest.fixture(autouse=True)
def nothing_is_left(broken: Gateway, up: FaultyUpstream) -> Iterator[None]:
    yield
    assert broken.wait_until_idle()
    assert up.wait(lambda: up.active == 0)


def joined(response: Response, index: int = 0) -> tuple[str, str, list[str]]:
    """The content, the reasoning and the arguments of tool calls in the deltas of a choice."""
    content = reasoning = ""
    calls: dict[int, str] = {}
    for delta in response.deltas(index):
        content += delta.get("content") or ""
        reasoning += delta.get("reasoning") or ""
        for fragment in delta.get("tool_calls", ()):
            calls.setdefault(fragment["index"], "")
            calls[fragment["index"]] += fragment["function"].get("arguments", "")
    return content, reasoning, [*calls.values()]


@pytest.mark.parametrize(("how", "name"), ROWS)
def test_a_client_receives_all_text_and_then_the_error(broken: Gateway, how: str, name: str) -> None:
    _, content, reasoning, calls = TEXTS[name]
    response = send_chat(broken, names(how, name), stream=True, tools=[ADD])
    assert (response.status, response.code) == (200, HOW[how])
    assert joined(response) == (content, reasoning, calls)
    assert not response.finishes


@pytest.mark.parametrize("how", HOW)
def test_a_stream_without_parsing_ends_the_same_way(broken: Gateway, how: str) -> None:
    for name in SLOW:
        response = send_chat(broken, "plain-" + names(how, name), stream=True)
        assert (response.status, response.code, response.text) == (200, HOW[how], TEXTS[name][0])
        assert not response.finishes


@pytest.mark.parametrize("how", HOW)
def test_each_choice_receives_its_text(broken: Gateway, how: str) -> None:
    name = "a stop begun in a call"
    response = send_chat(broken, names(how, name), stream=True, tools=[ADD], n=2)
    assert (response.status, response.code) == (200, HOW[how])
    assert [joined(response, index) for index in (0, 1)] == [(TEXTS[name][1], "", [])] * 2

    response = send_chat(
        broken, "single-" + names(how, name), stream=True, tools=[ADD], n=2
    )  # the second call is never made
    assert (response.status, response.code) == (200, HOW[how])
    assert [joined(response, index) for index in (0, 1)] == [(TEXTS[name][1], "", []), ("", "", [])]


def test_a_complete_single_tool_call_has_no_finish_either(broken: Gateway) -> None:
    response = send_chat(
        broken, names("drop", "a call but for its end marker"), stream=True, tools=[ADD], parallel_tool_calls=False
    )
    assert (joined(response), response.finishes, response.code) == (("", "", [ARGUMENTS]), {}, "upstream_disconnected")


@pytest.mark.parametrize("how", ["drop", "error"])
def test_a_failed_whole_answer_is_only_an_error(broken: Gateway, how: str) -> None:
    response = send_chat(broken, names(how, "a call begun"), tools=[ADD])
    assert (response.status, response.code) == (502, HOW[how])


def test_the_record_counts_an_incomplete_stream(broken: Gateway) -> None:
    name = names("drop", "nothing but that")
    before = broken.metric("gateway_stream_incomplete_total", model=name)
    send_chat(broken, name, stream=True, tools=[ADD])
    assert broken.wait_until_idle()
    assert broken.metric("gateway_stream_incomplete_total", model=name) == before + 1
