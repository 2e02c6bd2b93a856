"""What a person does on the pages, in Chromium. Run by ``tests/viewer/test_browser.py`` in ``.venv-browser``.

The argument is JSON with the addresses of the gateways. Prints one line of JSON for each journey: its name, and its
error or null.
"""

import json
import re
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect, sync_playwright

AXE = (Path(__file__).resolve().parents[3] / ".venv-browser/axe.js").read_text(encoding="utf-8")
QUESTION = "1+1=?"
CONVERSATION = [
    {"role": "user", "content": "1+1=?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "47+36=?"},
]
PROMPT = "<HUMAN>: 1+1=?<eoh>\n<BOT>: "
expect.set_options(timeout=20_000)


class Visit:
    """One person with a browser. Records what must not happen: messages on the console, and requests elsewhere."""

    def __init__(self, browser: Browser, given: dict, **options) -> None:
        self.given = given
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        self.problems: list[str] = []
        self.context.on("request", self._request)
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self.problems.append(str(error.error)))
        self.page = self.context.new_page()

    def _request(self, request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            self.problems.append(f"a request to {request.url}")

    def _console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def open(self, path: str, gateway: str = "open") -> Page:
        """Open a page of a gateway."""
        self.page.goto(self.given[gateway] + path)
        return self.page

    def check(self) -> None:
        """Fail for an accessibility violation on the page, and for what must not happen."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        nodes = [
            (one["id"], node["target"], node["failureSummary"]) for one in found["violations"] for node in one["nodes"]
        ]
        assert not nodes, nodes
        assert not self.problems, self.problems


def text_of(page: Page, selector: str) -> str:
    return page.eval_on_selector(selector, "one => one.textContent")


# ---------------------------------------------------------------- the journeys


def models(visit: Visit) -> None:
    page = visit.open("/")
    expect(page.locator("tbody th a").first).to_have_text("demo")
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("[data-copy=curl]").click()
    expect(page.locator("#copy-status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl http://127.0.0.1:")
    visit.check()
    expect(page.get_by_role("cell", name="broken/0").locator(".chip.bad")).to_contain_text("failed")
    page.locator(".chip.bad").click()
    expect(page.locator("h1")).to_have_text("Recordings")
    page.go_back()
    page.get_by_text("paths of this gateway").click()
    expect(page.get_by_role("cell", name="/v1/chat/completions", exact=True)).to_be_visible()
    visit.check()
    page.keyboard.press("Home")
    page.reload()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator("tbody th a").first.click()
    expect(page.locator("h1")).to_have_text("Prompt")
    assert page.locator("#model").input_value() == "demo"


def prompt(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    visit.check()
    page.locator("#model").select_option("demo")
    page.locator("#messages").fill(QUESTION)
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator("pre.prompt")).to_be_visible()
    assert text_of(page, "pre.prompt") == PROMPT, text_of(page, "pre.prompt")
    for summary in page.locator("summary").all():
        summary.click()
    visit.check()


def send(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#model").select_option("demo")
    page.locator("#messages").fill(json.dumps(CONVERSATION))
    page.get_by_role("button", name="Show the prompt").click()
    page.locator("#logprobs").check()
    page.locator("#send").click()
    expect(page.locator("#answer")).to_have_text("83")
    expect(page.locator("#answer [class^=lp-]").first).to_be_visible()
    expect(page.locator("#timing")).to_have_text(
        re.compile(r"Answer3 tokens in .+First textafter .+Prompt30 tokensFinish reasonstop")
    )
    assert page.locator("#timing svg").count() == 0, "two points are no picture"
    prompt, answer = page.locator("pre.prompt").bounding_box(), page.locator("#answer").bounding_box()
    assert prompt["x"] + prompt["width"] < answer["x"], "the answer stands beside the prompt"
    assert answer["y"] + answer["height"] < page.viewport_size["height"], "the answer is seen without scrolling"
    visit.check()
    page.get_by_text("Copy or save").click()
    for name, beginning, part in (
        ("curl", "curl http://127.0.0.1", "47+36=?"),
        ("python", "import json\n", "urllib.request"),
        ("link", "http://127.0.0.1", "#c="),
    ):
        page.locator(f"#copy-{name}").click()
        expect(page.locator("#copied")).to_have_text(re.compile(f"Copied: {name}.", re.IGNORECASE))
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(beginning), copied
        assert part in copied, copied
    link = copied
    other = visit.context.new_page()
    other.goto(link)
    expect(other.locator("#messages")).to_have_value(json.dumps(CONVERSATION))
    assert other.locator("#model").input_value() == "demo"
    with page.expect_download() as saved:
        page.locator("#save").click()
    third = visit.context.new_page()
    third.goto(visit.given["open"] + "/viewer/prompt")
    third.locator("#open").set_input_files(
        {"name": "c.json", "mimeType": "application/json", "buffer": saved.value.path().read_bytes()}
    )
    expect(third.locator("#messages")).to_have_value(json.dumps(CONVERSATION))
    assert not visit.problems, visit.problems


def wait(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    page.locator("#model").select_option("slow")
    page.locator("#messages").fill(QUESTION)
    page.locator("#send").click()
    expect(page.get_by_role("status")).to_have_text("Waiting for the first token.")
    expect(page.locator("#seconds")).to_have_text("1 s")
    visit.check()
    expect(page.get_by_role("status")).to_have_text("The answer arrives.")
    page.locator("#stop").click()
    expect(page.locator("#failure")).to_have_text("Stopped.")
    expect(page.locator("#seconds")).to_be_empty()
    expect(page.locator("#timing")).to_have_text(re.compile(r"Answer1 event in \d\.\d sFirst textafter \d\.\d s"))
    visit.check()


def errors(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    page.locator("#messages").fill(QUESTION)
    page.locator("summary").first.click()
    page.locator("#tools").fill("[{")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator("#error")).to_contain_text("tools: not valid JSON")
    assert page.locator("#tools").get_attribute("aria-describedby") == "error"
    assert page.locator("#messages").input_value() == QUESTION
    visit.check()
    page.locator("#tools").fill("")
    page.locator("#model").select_option("broken")
    page.locator("#send").click()
    expect(page.locator("#failure")).to_contain_text("upstream_error")
    visit.problems.clear()  # Chromium reports the status 502 of the call
    page.goto(visit.given["open"] + "/viewer/nothing")
    expect(page.locator("h1")).to_have_text("This page cannot be shown")
    visit.problems.clear()  # and the status 404 of the page
    visit.check()


def compare(visit: Visit) -> None:
    page = visit.open("/viewer/compare")
    assert [page.locator(name).input_value() for name in ("#model", "#model-b")] == ["demo", "wrong-template"]
    page.locator("#messages").fill(QUESTION)
    page.get_by_role("button", name="Compare the prompts").click()
    expect(page.locator("main")).to_contain_text("the first at byte 1 (line 1, column 2)")
    expect(page.get_by_role("row", name="stop").first).to_contain_text("differs")
    page.locator("#send").click()
    expect(page.locator("#answer")).to_have_text("2")
    expect(page.locator("#answers")).to_have_text("The answers differ after 0 equal characters.")
    expect(page.get_by_role("heading", name="Answer of wrong-template")).to_be_visible()
    assert text_of(page, "#answer mark") == "2"
    assert text_of(page, "#answer-b mark") == text_of(page, "#answer-b").split()[0]
    visit.check()
    for model in ("#model", "#model-b"):
        page.locator(model).select_option("hostile")
    page.locator("#send").click()
    expect(page.locator("#answers")).to_have_text("The answers are equal.")
    assert page.locator(".answer mark").count() == 0
    page.locator("#model").select_option("demo")
    page.locator("#send").click()
    expect(page.locator("#answers")).to_have_text("The answers differ after 0 equal characters.")
    assert text_of(page, "#answer-b mark") == "<img"
    page.locator("#model-b").select_option("empty")
    page.locator("#send").click()
    expect(page.locator("#answers")).to_have_text(
        "The answers differ after 0 equal characters, where that of empty ends."
    )
    assert page.locator(".answer mark").all_text_contents() == ["2", ""], "the answer that has ended has an empty mark"
    assert page.title() == "Compare · meta-gateway"
    page.locator("#model").select_option("broken")
    page.locator("#send").click()
    expect(page.locator("#failure")).to_contain_text("upstream_error")
    expect(page.locator("#answers")).to_be_empty()
    expect(page.locator("#answer")).to_be_hidden()
    expect(page.locator("#timing")).to_be_empty()
    visit.problems.clear()  # Chromium reports the status 502 of the call
    visit.check()


def recordings(visit: Visit) -> None:
    page = visit.open("/viewer/recordings")
    expect(page.locator("main")).to_contain_text("contains a token")
    visit.check()
    page = visit.open(visit.given["entrance"].removeprefix(visit.given["open"]))
    assert "token" not in page.url, page.url
    page.get_by_role("navigation").get_by_role("link", name="Recordings").click()
    page.get_by_label("Model").select_option("messages")
    page.get_by_role("button", name="Filter").click()
    assert "model=messages" in page.url
    visit.check()
    page.locator("tbody a").first.click()
    expect(page.get_by_role("region", name="Answer")).to_have_text("Hello")
    for summary in page.locator("summary").all():
        summary.click()
    visit.check()
    page.get_by_role("link", name="Open in Prompt").click()
    expect(page.locator("#messages")).to_have_value('[\n {\n  "content": "hello",\n  "role": "user"\n }\n]')
    page = visit.open("/viewer/recordings?run=monday")
    page.locator("tbody a").first.click()
    expect(page.locator(".prompt .client.role-0")).to_have_text("8+61=?")
    page.keyboard.press("j")
    expect(page.get_by_role("region", name="Question")).to_have_text("8+35=?")
    page.keyboard.press("k")
    expect(page.get_by_role("region", name="Question")).to_have_text("8+61=?")
    page.get_by_role("link", name="Open in Prompt").click()
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator(".prompt .client.role-0")).to_have_text("8+61=?")
    page.get_by_role("navigation").get_by_role("link", name="Recordings").click()
    page.get_by_label("Outcome").select_option("upstream_error")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr").first).to_contain_text("broken")
    page.locator("tbody a").first.click()
    expect(page.get_by_role("alert")).to_contain_text("What to do:")
    visit.check()


def runs(visit: Visit) -> None:
    visit.open(visit.given["entrance"].removeprefix(visit.given["open"]))
    page = visit.open("/viewer/runs")
    visit.check()
    page.get_by_label("monday as A").check()
    page.get_by_label("tuesday as B").check()
    page.get_by_role("button", name="Compare A and B").click()
    expect(page.locator("h1")).to_have_text("Why monday and tuesday differ")
    visit.check()
    page.locator("tbody a").first.click()
    visit.check()
    page.get_by_label("Where").focus()
    page.keyboard.press("j")
    expect(page.locator("h1")).to_contain_text(" rows that differ")
    page.locator("tbody a").first.click()
    expect(page.locator("#prompt-1")).to_be_visible()
    visit.check()
    for key, number in (("j", "2"), ("j", "3"), ("k", "2"), ("k", "1"), ("k", "1")):
        page.keyboard.press(key)
        expect(page.locator(".pager")).to_contain_text(f"Row {number} of ")
    page.locator("summary").click()
    expect(page.get_by_role("region", name="Equal parameters")).to_be_visible()
    visit.check()
    page.locator(".crumbs a").last.click()
    expect(page.locator("h1")).to_contain_text(" rows that differ")
    page.get_by_role("link", name="Why monday and tuesday differ").click()
    expect(page.locator("h1")).to_have_text("Why monday and tuesday differ")
    page = visit.open("/viewer/runs/report?run=tuesday")
    visit.check()
    page.locator(".band li a").first.click()
    expect(page.locator("h1")).to_have_text("Rows of tuesday")
    visit.check()


def view_two_files(visit: Visit) -> None:
    page = visit.page
    page.goto(visit.given["view"])
    expect(page.locator("h1")).to_contain_text("differ")
    expect(page.locator("main")).to_contain_text("parameters")
    assert page.locator("nav a:not(.name)").count() == 1
    visit.check()
    page.locator(".cards dd > a").first.click()
    visit.check()
    page.get_by_label("Kind").select_option("max_tokens")
    page.get_by_role("button", name="Filter").click()
    assert "kind=max_tokens" in page.url, page.url
    page.locator("tbody a").first.click()
    change = re.compile("monday.jsonl ✓ right .* → wednesday.jsonl ✗ wrong .*, expected ")
    expect(page.locator(".lead")).to_contain_text(change)
    page.keyboard.press("j")
    expect(page.locator(".pager")).to_contain_text("Row 2 of ")
    assert "kind=max_tokens" in page.url, page.url
    visit.check()
    report_of_a_file(visit)


def report_of_a_file(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("link", name="Runs").first.click()
    expect(page.get_by_label("monday.jsonl as A")).to_be_checked()
    expect(page.get_by_label("wednesday.jsonl as B")).to_be_checked()
    page.get_by_role("link", name="wednesday.jsonl").click()
    expect(page.locator(".cards")).to_contain_text("Score (exact)")
    page.get_by_text("Table", exact=True).first.click()
    visit.check()
    page.locator("details a").first.click()
    expect(page.locator("h1")).to_have_text("Rows of wednesday.jsonl")
    page.get_by_label("Duration").fill("")
    page.get_by_role("button", name="Filter").click()
    assert "duration=&" in f"{page.url}&", page.url
    page.locator(".crumbs a").last.click()
    page.get_by_role("link", name="Compare with another run").click()
    page.get_by_label("monday.jsonl as B").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Why wednesday.jsonl and monday.jsonl differ")
    visit.check()


def sign_in(visit: Visit) -> None:
    page = visit.open("/", "keyed")
    visit.check()
    page.get_by_role("navigation").get_by_role("link", name="Sign in").click()
    expect(page.get_by_label("Client key")).to_be_visible()
    page = visit.open("/viewer/recordings", "keyed")
    visit.check()
    page.get_by_label("Client key").fill("gk_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("no valid key")
    page.get_by_label("Client key").fill("gk_some")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("nav")).to_contain_text("gk_some")
    page = visit.open("/viewer", "keyed")
    expect(page.locator("tbody").first).to_contain_text("open-a")
    assert "secret" not in page.content()
    visit.check()
    page = visit.open("/viewer/prompt", "keyed")
    page.locator("#messages").fill("hi")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator("main")).to_contain_text("sha256")
    page.locator("#send").click()
    expect(page.locator("#answer")).to_have_text("Hello")
    page.get_by_role("button", name="Sign out").click()
    page = visit.open("/viewer/recordings", "keyed")
    expect(page.get_by_label("Client key")).to_be_visible()
    assert not visit.problems, visit.problems


def narrow_prompts(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 380, "height": 800})
    for path, button in (("/viewer/prompt", "Show the prompt"), ("/viewer/compare", "Compare the prompts")):
        page = visit.open(path)
        page.locator("#messages").fill("a very long line of words without a break " * 8)
        page.get_by_role("button", name=button).click()
        page.wait_for_selector("pre.prompt")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 380, (page.url, width)
        visit.check()


TABBED = (
    "/",
    "/viewer/prompt",
    "/viewer/recordings",
    "/viewer/runs",
    "/viewer/runs/report?run=tuesday",
    "/viewer/runs/rows?run=tuesday",
    "/viewer/runs/why?a=monday&b=tuesday",
    "/viewer/runs/rows?a=monday&b=tuesday",
    "/viewer/runs/row?a=monday&b=tuesday&row=row-0",
)
FOCUSED = """(() => {
    const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
    return [one.matches('a, button'), box.width > 0 && style.outlineStyle !== 'none', one.outerHTML.slice(0, 200)];
})()"""


def the_tab_key(visit: Visit) -> None:
    visit.open(visit.given["entrance"].removeprefix(visit.given["open"]))
    for path in TABBED:
        page, reached = visit.open(path), 0
        wanted = page.locator("a:visible, svg a, button:visible:enabled").count()
        for _ in range(400):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('body, a.skip')") and reached > 1:
                break  # after the last element
            is_control, has_outline, element = page.evaluate(FOCUSED)
            assert has_outline, (path, element)
            reached += is_control
        assert reached == wanted, (path, reached, wanted)


def hostile_texts(visit: Visit) -> None:
    page = visit.open(visit.given["entrance"].removeprefix(visit.given["open"]))
    page.evaluate("localStorage.clear()")
    for path in (*visit.given["hostile"], "/viewer/recordings?model=%22%3E%3Cimg%20src%3Dx%20onerror%3Dran()%3E"):
        visit.open(path)
        assert page.locator("main img, main iframe, main script, main object, main a[href^='javascript']").count() == 0
    page = visit.open("/viewer/prompt")
    page.locator("#model").select_option("hostile")
    for text in ("<img src=x onerror=document.title='ran'>", "</textarea><script>document.title='ran'</script>"):
        page.locator("#messages").fill(text)
        page.locator("#send").click()
        expect(page.locator("#answer")).to_contain_text("<script>")
        page.get_by_role("button", name="Show the prompt").click()
        page.wait_for_selector("pre.prompt")
        assert text in text_of(page, "pre.prompt")
    assert page.title() == "Prompt · meta-gateway"
    assert not visit.problems, visit.problems


def without_scripts(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    page.locator("#messages").fill(QUESTION)
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator("pre.prompt")).to_contain_text("<HUMAN>: 1+1=?<eoh>")
    expect(page.locator("#send")).to_be_hidden()
    visit.open(visit.given["entrance"].removeprefix(visit.given["open"]))
    for path in TABBED[2:]:
        expect(visit.open(path).locator("main :is(td, dd, pre)").first).to_be_visible()
    page.get_by_role("link", name="Next row").click()
    expect(page.locator(".pager")).to_contain_text("Row 2 of ")


def large_texts(visit: Visit) -> None:
    page = visit.open("/viewer/prompt")
    page.locator("#model").select_option("long")
    page.locator("#messages").fill("hello, world! " * 14_300)
    started = time.monotonic()
    page.get_by_role("button", name="Show the prompt").click()
    page.wait_for_selector("pre.prompt")
    shown = time.monotonic() - started
    page.locator("#send").click()
    expect(page.locator("#answer")).to_contain_text("word 19999 ", timeout=50_000)
    expect(page.locator("#timing svg")).to_have_attribute("aria-label", re.compile("Time before each of 20000 events"))
    answered = time.monotonic() - started - shown
    started = time.monotonic()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    frame = time.monotonic() - started
    assert max(shown, frame) < 20, (shown, answered, frame)
    print(
        json.dumps({"seconds": {"200 kB shown": shown, "20 000 tokens": answered, "then a frame": frame}}),
        file=sys.stderr,
    )
    assert not visit.problems, visit.problems


JOURNEYS = (
    models,
    prompt,
    send,
    wait,
    errors,
    compare,
    recordings,
    runs,
    view_two_files,
    sign_in,
    narrow_prompts,
    the_tab_key,
    hostile_texts,
    without_scripts,
    large_texts,
)


def main() -> None:
    given = json.loads(sys.argv[1])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given["chromium"], args=["--no-sandbox"])
        for journey in JOURNEYS:
            visit, error = Visit(browser, given, java_script_enabled=journey is not without_scripts), None
            started = time.monotonic()
            try:
                journey(visit)
            except Exception:
                error = f"{visit.page.url}\n{traceback.format_exc()}\n{visit.problems}"
            visit.context.close()
            print(
                json.dumps({"journey": journey.__name__, "error": error, "seconds": time.monotonic() - started}),
                flush=True,
            )
        browser.close()


if __name__ == "__main__":
    main()
