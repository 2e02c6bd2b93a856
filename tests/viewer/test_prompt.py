"""The pages Prompt and Compare, with the demo model and a chat template."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from typing import Any

import httpx
import pytest

from gateway.core.caller import Caller
from gateway.viewer.exact_text import exact
from gateway.viewer.page import PageRequest, Visitor
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.prompt.differences import differences
from gateway.viewer.prompt.pages import PromptPages
from tests.cli.command import command
from tests.support.serving import ROOT, Gateway
from tests.support.world import gateway_fixture
from tests.viewer.browsing import Browser, form_token

CONFIG = f"""
models:
  demo:
    template: sft-demo
    policy: eval
    targets: [{{speaks: embedded, path: {ROOT / "demo" / "model"}}}]
  wrong:
    template: chatml
    targets: [{{speaks: embedded, path: {ROOT / "demo" / "model"}}}]
  messages:
    template: chat
    targets: [{{speaks: chat, url: "http://127.0.0.1:9/v1"}}]
  long:
    template: chatml
    targets: [{{speaks: completions, url: "http://127.0.0.1:9/v1"}}]
  ids:
    template: sft-demo
    policy: ids
    targets: [{{speaks: embedded, path: {ROOT / "demo" / "model"}}}]
"""
HOSTILE = "<script>alert(1)</script>\"'&amp;</pre></textarea>"
ROW = {"question": "1+1=?", "A": "2", "B": "3", "C": "4", "D": "5"}

served = gateway_fixture(CONFIG, {"prompts": ROOT / "prompts", "policies/ids.yaml": "markers: {token_like: token_ids}"})


def values(served: Gateway, page: str = "prompt", **form: str) -> Any:
    """The values of a page for a posted form."""
    return post(served, f"{page}.json", **form).json()


def post(served: Gateway, page: str = "prompt", **form: str) -> httpx.Response:
    browser = Browser(served.root)
    token = form_token(browser.get("/viewer/prompt"))
    fields = {"model": "demo", "conversation": "1+1=?", "form_token": token, **form}
    answer = browser.post(f"/viewer/{page}", fields)
    assert answer.status_code == 200, answer.text
    return answer


def render(served: Gateway, **body: Any) -> Any:
    return served.http.post("/v1/render", json={"model": "demo", **body}).json()


def shown_prompts(html: str) -> list[str]:
    """The texts of all elements ``pre`` with a prompt, as a browser would copy them."""
    found = re.findall(r'<pre class="prompt"[^>]*>(.*?)</pre>', html, re.DOTALL)
    return [unescape(re.sub(r"<[^>]*>", "", one)) for one in found]


CONVERSATIONS = {
    "a text": "1+1=?",
    "white space": " a\t b  \n\n c\u00a0\u200b\u202e! ",
    "messages": json.dumps(
        [{"role": "system", "content": "Be brief.\r\nNow."}, {"role": "user", "content": "hé 世 🎉"}]
    ),
    "hostile": HOSTILE,
    "a text in brackets": "[INST] 1+1",
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("model", ["demo", "wrong", "long"])
def test_the_page_shows_the_exact_prompt_of_render(served: Gateway, model: str, name: str) -> None:
    typed = CONVERSATIONS[name]
    messages = json.loads(typed) if name == "messages" else [{"role": "user", "content": typed}]
    expected = render(served, model=model, messages=messages)
    [result] = values(served, model=model, conversation=typed)["results"]
    assert result["prompt"] == expected["prompt"]
    assert "".join(one["text"] for one in result["segments"]) == expected["prompt"]
    assert result["bytes"] == len(expected["prompt"].encode())
    assert result["prompt_sha256"] == expected["prompt_sha256"]
    assert shown_prompts(post(served, model=model, conversation=typed).text) == [expected["prompt"]]


def test_each_segment_has_its_role_and_its_writer(served: Gateway) -> None:
    [result] = values(served)["results"]
    assert [(one["role"], one["kind"], one["text"]) for one in result["segments"]] == [
        ("HUMAN", "template", "<HUMAN>: "),
        ("HUMAN", "client", "1+1=?"),
        ("HUMAN", "template", "<eoh>\n"),
        ("BOT", "template", "<BOT>: "),
    ]
    assert result["special_tokens"] == ["<BOT>", "<HUMAN>", "<eoh>"]
    assert result["stop"] == ["<eob>"]
    assert result["params"]["temperature"] == "0"


def test_the_tokens_are_the_ids_of_render_and_their_texts(served: Gateway) -> None:
    typed = "1+é=?"
    [result] = values(served, conversation=typed)["results"]
    ids = render(served, messages=[{"role": "user", "content": typed}])["token_ids"]
    assert [one["id"] for one in result["tokens"]] == ids
    assert result["token_count"] == len(ids)
    texts = [one["text"] for one in result["tokens"]]
    assert texts[:2] == ["<s>", "<HUMAN>"]
    assert [one["text"] for one in result["tokens"] if one["is_part"]] == ["é", "é"]


def test_ids_that_are_sent_are_shown_with_their_names_beside_the_text(served: Gateway) -> None:
    typed = "1+1=<eoh>"
    page = post(served, model="ids", conversation=typed).text
    [result] = values(served, model="ids", conversation=typed)["results"]
    shown = render(served, model="ids", messages=[{"role": "user", "content": typed}])
    assert result["prompt"] == "".join(one["text"] for one in result["segments"]) == "<HUMAN>: 1+1=<eoh><eoh>\n<BOT>: "
    assert [one["id"] for one in result["tokens"]] == shown["token_ids"]
    assert [one["text"] for one in result["tokens"]].count("<eoh>") == 1  # the one that the template has written
    assert f"<dd>{len(shown['token_ids'])} token ids in place of the text; token 8 is" in page
    assert "&lt;eoh&gt;</code> if the text is tokenized as a whole" in page
    assert "in place of the text" not in post(served, model="ids").text


def test_a_row_of_a_dataset_prompt_is_shown_as_written_by_the_dataset(served: Gateway) -> None:
    [result] = values(served, dataset_prompt="sums-few-shot", row=json.dumps(ROW))["results"]
    assert result["dataset_prompt"].startswith("sums-few-shot@sha256:")
    assert {one["kind"] for one in result["segments"]} == {"template", "dataset"}


def test_labels_and_turns_have_a_prompt_each(served: Gateway) -> None:
    labels = values(served, dataset_prompt="sums-choice", row=json.dumps(ROW))["results"]
    assert [one["title"] for one in labels] == ["Label A", "Label B", "Label C", "Label D"]
    assert labels[1]["prompt"].endswith("<BOT>: 3<eob>\n")
    row = {"question": ["1+1=?", "2+2=?"], "answer": ["2", "4"]}
    options = {"prompt": {"id": "sums-dialogue", "variables": row}, "turns": {"mode": "every_with_gt"}}
    turns = values(served, parameters=json.dumps({"gateway": options, "messages": None}))["results"]
    assert [one["title"] for one in turns] == ["Turn 1", "Turn 2"]
    assert turns[1]["prompt"] == "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n<HUMAN>: 2+2=?<eoh>\n<BOT>: "


def test_messages_that_the_model_s_server_renders_are_shown_as_lines_of_json(served: Gateway) -> None:
    [result] = values(served, model="messages", conversation="hi")["results"]
    assert result["is_messages"]
    assert result["prompt"] == '{"role": "user", "content": "hi"}\n'


ERRORS: dict[str, tuple[dict[str, str], str, str]] = {
    "an unknown model": ({"model": "dem"}, "model", 'did you mean "demo"'),
    "messages that are not JSON": ({"conversation": '[{"role": "user"'}, "conversation", "line 1, column"),
    "tools that are not JSON": ({"tools": "{"}, "tools", "not valid JSON"),
    "parameters that are no object": ({"parameters": "[1]"}, "parameters", "temperature"),
    "a parameter out of range": ({"parameters": '{"temperature": 9}'}, "parameters", "temperature"),
    "an unknown role": ({"conversation": '[{"role": "x", "content": "a"}]'}, "conversation", "role"),
    "a row without a column": ({"dataset_prompt": "sums", "row": "{}"}, "row", "question"),
    "an unknown dataset prompt": ({"dataset_prompt": "sum"}, "dataset_prompt", "sums"),
    "a context that is too long": ({"conversation": "x" * 3 * 2**20}, "conversation", "at most 2000000"),
    "a number with too many digits": ({"tools": "9" * 5000}, "tools", "digits"),
    "deep JSON": ({"tools": "[" * 100_000}, "tools", "JSON"),
    "a lone surrogate": ({"conversation": '[{"role": "user", "content": "\\ud800"}]'}, "", ""),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_shown_beside_the_form_which_keeps_what_was_typed(served: Gateway, name: str) -> None:
    form, field, hint = ERRORS[name]
    found = values(served, **form)
    assert found["results"] == []
    assert found["error"]["field"] == field or not hint
    assert hint in found["error"]["message"]
    assert {**found["typed"], **form} == found["typed"]
    html = post(served, **form).text
    assert 'role="alert"' in html
    assert not hint or 'aria-invalid="true"' in html


def test_hostile_text_is_escaped_everywhere(served: Gateway) -> None:
    fields = ("conversation", "tools", "variables", "row", "parameters", "model", "dataset_prompt")
    pages = [post(served, conversation=HOSTILE), post(served, "compare", model_b="wrong", conversation=HOSTILE)]
    pages += [post(served, **{name: HOSTILE}) for name in fields]
    pages += [served.http.get("/viewer/prompt", params={name: HOSTILE}) for name in fields]
    for page in pages:
        assert "alert(1)" in page.text
        assert "<script>" not in page.text
        assert not re.search(r"<[^>]*\s(style|on\w+)=", page.text)


def test_a_call_is_counted_and_limited_as_over_http(served: Gateway) -> None:
    labels = {"model": "demo", "endpoint": "render", "outcome": "ok"}
    before = served.counted("gateway_requests_total", **labels)
    post(served)
    assert served.counted("gateway_requests_total", **labels) == before + 1


def test_the_first_page_is_an_empty_form_with_the_models(served: Gateway) -> None:
    found = served.http.get("/viewer/prompt.json", params={"model": "wrong"}).json()
    assert (found["models"], found["results"], found["error"]) == (
        ["demo", "wrong", "messages", "long", "ids"],
        [],
        None,
    )
    assert found["typed"]["model"] == "wrong"
    assert "sums-few-shot" in found["dataset_prompts"]


def test_a_visitor_sees_only_the_models_of_the_key(served: Gateway) -> None:
    def models(visitor: Visitor) -> Any:
        asked = PageRequest("/prompt", {}, None, "/viewer", visitor)
        return asyncio.run(PromptPages(served.runtime.state, PageThreads()).page(asked)).values

    assert models(Visitor(Caller(key="k", models=frozenset({"wrong"}))))["models"] == ["wrong"]
    nobody = models(Visitor(None, may_read=False, problem="sign in"))
    assert (nobody["models"], nobody["problem"]) == ([], "sign in")


def test_a_prompt_of_200_kb_has_a_page_of_bounded_size(served: Gateway) -> None:
    typed = "a b\n" * 50_000
    page = post(served, model="long", conversation=typed)
    assert len(page.content) < 1_500_000
    assert page.text.count("data-mark") < 25_000
    assert "first 20 000 characters" in page.text
    expected = render(served, model="long", messages=[{"role": "user", "content": typed}])["prompt"]
    assert shown_prompts(page.text) == [expected]


def test_a_conversation_of_many_messages_has_at_most_1001_segments(served: Gateway) -> None:
    messages = [{"role": role, "content": "x"} for _ in range(600) for role in ("user", "assistant")][:-1]
    [result] = values(served, model="long", conversation=json.dumps(messages))["results"]
    assert len(result["segments"]) == 1001
    assert "".join(one["text"] for one in result["segments"]) == result["prompt"]


def test_compare_names_the_first_difference_of_gateway_diff(served: Gateway) -> None:
    found = values(served, "compare", model_b="wrong", conversation="hé\n1+1=?")["compared"]
    printed = command(served.folder, "diff", "demo", "wrong", "-m", "user:hé\n1+1=?").stdout.decode()
    assert found["first"] == printed.splitlines()[2:5]
    assert found["differences"][0]["byte_a"] == found["differences"][0]["byte_b"] == 1


def test_compare_shows_both_exact_prompts(served: Gateway) -> None:
    page = post(served, "compare", model_b="wrong")
    messages = [{"role": "user", "content": "1+1=?"}]
    assert shown_prompts(page.text) == [
        render(served, model=one, messages=messages)["prompt"] for one in ("demo", "wrong")
    ]
    same = values(served, "compare", model_b="demo")["compared"]
    assert (same["is_equal"], same["first"], same["differences"]) == (True, [], [])


def test_stops_that_are_markup_are_text(served: Gateway) -> None:
    page = post(served, "compare", model_b="wrong", parameters=json.dumps({"stop": [HOSTILE]})).text
    assert "<script>alert" not in page
    assert unescape(re.sub("<[^>]*>", "", page)).count(json.dumps(HOSTILE)) == 3  # in the form and for both models


def test_an_error_of_the_second_model_is_shown_at_its_field(served: Gateway) -> None:
    assert values(served, "compare", model_b="none")["error"]["field"] == "model_b"


PAIRS = {
    "one byte": ("abc", "abd"),
    "bytes of a character": ("aé!", "aè!"),
    "an end": ("abc", "ab"),
    "empty": ("", "x"),
    "lines": ("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"),
    "many lines": ("a\n" * 5000, "b\n" * 5000),
    "a long line": ("a" * 100_000, "ab" * 50_000),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_parts_of_each_side_are_its_text(name: str) -> None:
    found = differences(*[[text[:2], text[2:]] for text in PAIRS[name]])
    for side, text in zip(found["sides"], PAIRS[name], strict=True):
        assert "".join(part["text"] for part in side["parts"]) == text
    equal = ["".join(part["text"] for part in side["parts"] if part["is_equal"]) for side in found["sides"]]
    assert equal[0] == equal[1]
    first = found["differences"][0]
    for text, side in zip(PAIRS[name], "ab", strict=True):
        assert first[side] in text
    one, other = (text.encode()[: first[key]] for text, key in zip(PAIRS[name], ("byte_a", "byte_b"), strict=True))
    assert one == other


def test_a_long_text_in_both_prompts_is_no_difference(served: Gateway) -> None:
    typed = "".join(f"line {number} of the text\n" for number in range(2000))
    found = values(served, "compare", model_b="long", conversation=typed)["compared"]
    assert max(len(part["text"]) for part in found["sides"][0]["parts"] if part["is_equal"]) >= len(typed)
    assert sum(len(part["text"]) for part in found["sides"][0]["parts"] if not part["is_equal"]) < 50


def test_the_first_difference_begins_where_the_prompts_differ_first() -> None:
    row = differences(["xab"], ["xxab"])["differences"][0]
    assert row == {"byte_a": 1, "byte_b": 1, "a": "xab", "b": "xxab"}
    row = differences(["é" * 300 + "a"], ["é" * 300 + "b"])["differences"][0]
    assert row == {"byte_a": 600, "byte_b": 600, "a": "é" * 100 + "a", "b": "é" * 100 + "b"}


WORDS = {
    "the case of a role": ("<|im_start|>user\nhi", "<|im_start|>User\nhi", [("user", "User")]),
    "another marker": ("<|im_start|>hi", "<|im_end|>hi", [("<|im_start|>", "<|im_end|>")]),
    "markers of other templates": ("<s>[INST] hi", "<HUMAN>: hi", [("<s>[INST]", "<HUMAN>:")]),
    "a blank": ("one  two", "one two", [(" ", "")]),
    "a missing line feed": ("<|im_end|>\n", "<|im_end|>", [("\n", "")]),
    "words of a line": ("the number is 12.", "the sum is 13.", [("number", "sum"), ("12", "13")]),
    "characters of Chinese": ("请回答问题。", "请回复问题。", [("答", "复")]),
}


@pytest.mark.parametrize("name", WORDS)
def test_differences_are_whole_words_and_markers(name: str) -> None:
    one, other, expected = WORDS[name]
    found = differences([one], [other])["differences"]
    assert [(row["a"], row["b"]) for row in found] == expected


def test_compare_begins_with_the_first_two_models(served: Gateway) -> None:
    def chosen(**query: str) -> tuple[str, str]:
        page = served.http.get("/viewer/compare", params=query).text
        found = re.findall(r"<option selected>(.*?)</option>", page)
        return found[0], found[-1]

    assert served.http.get("/viewer/compare.json").json()["typed"]["model_b"] == "wrong"
    assert chosen(model="wrong") == ("wrong", "demo")
    assert chosen(model="wrong", model_b="long") == ("wrong", "long")


def test_compare_shows_stops_and_parameters_side_by_side(served: Gateway) -> None:
    page = post(served, "compare", model_b="wrong").text
    rows = {row["name"]: row for row in values(served, "compare", model_b="wrong")["compared"]["settings"]}
    assert rows["stop"] == {
        "name": "stop",
        "values": ['["<eob>"]', '["<|im_end|>"]'],
        "is_equal": False,
        "set_by_gateway": [False, False],
    }
    assert rows["temperature"]["values"] == ["0", None]
    assert rows["stop_token_ids"]["is_equal"]
    limit = rows["max_tokens"]
    assert limit["values"][0] != limit["values"][1], "what the two prompts leave of the context"
    assert (limit["is_equal"], limit["set_by_gateway"]) == (False, [True, True])
    assert "(set by the gateway)" in page
    given = values(served, "compare", model_b="wrong", parameters='{"max_tokens": 7}')["compared"]["settings"]
    assert [row["set_by_gateway"] for row in given if row["name"] == "max_tokens"] == [[False, False]]
    shown = re.findall(r'<tr><th scope="row">([^<]*?)( <span class="chip warn">differs</span>)?</th>', page)
    assert {name: not mark for name, mark in shown} == {
        name: row["is_equal"] or row is limit for name, row in rows.items()
    }
    assert [bool(mark) for _, mark in shown] == sorted([bool(mark) for _, mark in shown], reverse=True)


def test_marks_of_white_space_are_attributes_so_that_the_text_can_be_copied() -> None:
    assert exact("a  b\n\t<", 99) == 'a<i data-mark="··">  </i>b<i data-mark="↵">\n</i><i data-mark="→">\t</i>&lt;'
    assert exact("a \r", 0) == "a &#13;"
    assert exact("x<s>\u202e", 99, ["<s>"]) == 'x<b>&lt;s&gt;</b><i data-mark="U+202E">\u202e</i>'
