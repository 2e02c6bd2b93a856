"""The documentation agrees with the code: every setting, verb, metric and error code has its line."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gateway.backend.openai.request.control_fields import CONTROL_FIELDS
from gateway.cli import VERBS, load_verb
from gateway.config.load import read_configuration
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.settings import GATEWAY
from gateway.core.errors import ConfigError, GatewayError
from gateway.policy.deliver.targets.retry import retry_rule
from gateway.telemetry.metric_definitions import LABEL_VALUES, METRICS, Metric
from gateway.workshop.parity.cases import matrix
from gateway.workshop.parity.causes import CAUSES
from tests.reliability.matrix import FIGURE_TESTS, TESTS

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
}
CONFIGURATION, METRICS_PAGE, ERRORS, COMMANDS = (
    PAGES[f"docs/{name}.md"] for name in ("configuration", "metrics", "errors", "cli")
)

each_page = pytest.mark.parametrize("name", PAGES)


def first_cells(page: str) -> list[str]:
    """The names in code font in the first columns of tables."""
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def code(page: str) -> str:
    """The code blocks and code spans of a page."""
    return "\n".join(re.findall(r"```.*?^```|`[^`\n]+`", page, re.MULTILINE | re.DOTALL))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    bare = re.sub(r"```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", bare, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


# ---------------------------------------------------------------- settings


def test_the_page_lists_the_accepted_provider_options() -> None:
    line = next(line for line in CONFIGURATION.splitlines() if "target takes these options" in line)
    assert tuple(re.findall(r"`(\w+)`", line.partition("options:")[2])) == BACKEND_KINDS["litellm"].options


@pytest.mark.parametrize("engine", CONTROL_FIELDS)
def test_the_page_lists_the_refused_control_fields_of_an_engine(engine: str) -> None:
    line = next(line for line in CONFIGURATION.splitlines() if line.startswith(f"| {engine} |"))
    assert set(re.findall(r"`([\w.]+)`", line)) == CONTROL_FIELDS[engine]


EXAMPLES = re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", CONFIGURATION, re.MULTILINE | re.DOTALL)
"""(file, text) of each example on the page."""


@pytest.mark.parametrize("text", [text for file, text in EXAMPLES if file == GATEWAY])
def test_an_example_configuration_has_no_problems(text: str, tmp_path: Path) -> None:
    for file, other in [*EXAMPLES, (GATEWAY, text)]:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(other, encoding="utf-8")
    (tmp_path / "images").mkdir()
    env = {"OPENAI_API_KEY": "sk-example", "ENGINE_KEY": "example"}
    assert read_configuration(tmp_path / GATEWAY, env, everything=True).problems == ()


def test_the_security_page_names_rows_figures_and_tests_that_exist() -> None:
    page = PAGES["docs/security.md"].partition("## Attackers")[2].partition("## What is not")[0]
    shown = [line.rsplit("|", 2)[1] for line in page.splitlines() if line.startswith("| ")]
    assert [cell for cell in shown if not re.fullmatch(r"[\w/.`, ]+", cell)] == []
    named = set(re.findall(r"\b[A-HT]\d+\b", " ".join(shown)))
    assert named <= {*TESTS, *FIGURE_TESTS}
    assert [path for path in re.findall(r"`(tests/\S+)`", page) if not (ROOT / path).is_file()] == []


# ---------------------------------------------------------------- metrics, errors, verbs


def metric_line(row: Metric) -> str:
    """A metric's line in docs/metrics.md."""
    labels = ", ".join(f"`{label}`" for label in row.labels) or "none"
    return f"| `{row.name}` | {row.kind} | {labels} | {row.help} |"


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row.name)
def test_a_metric_has_its_line(row: Metric) -> None:
    assert metric_line(row) in METRICS_PAGE.splitlines()


def test_the_metrics_page_lists_no_metric_that_does_not_exist() -> None:
    named = [name for name in first_cells(METRICS_PAGE) if name.startswith("gateway_")]
    assert named == [row.name for row in METRICS]


LABELS = {
    label: tuple(word for word in re.findall(r"`([^`]+)`", values) if "." not in word)
    for label, values in re.findall(
        r"^\| ([\w() ]+?) \| (.*) \|$", METRICS_PAGE.partition("## Labels")[2], re.MULTILINE
    )
}
"""Label → the values on the metrics page, without names of settings."""


@pytest.mark.parametrize("label", LABEL_VALUES)
def test_the_values_of_a_label_are_those_the_page_lists(label: str) -> None:
    assert LABELS[label] == LABEL_VALUES[label]


TRIED_AGAIN = {
    (True, False, True): "other targets",
    (False, False, True): "one other target",
    (False, True, True): "once",
    (False, False, False): "no",
}
"""Several retries, also at the same target, any retry → the word in the column "Tried again"."""


def errors_below(error: type[GatewayError]) -> list[type[GatewayError]]:
    """The class and its subclasses in ``gateway``."""
    found = [error] + [one for below in error.__subclasses__() for one in errors_below(below)]
    return [one for one in found if one.__module__.startswith("gateway.")]


@pytest.mark.parametrize("error", errors_below(GatewayError), ids=lambda error: error.__name__)
def test_an_error_code_has_its_line(error: type[GatewayError]) -> None:
    if issubclass(error, ConfigError):
        assert f"`{error.code}`" in ERRORS  # described in prose: it never reaches a client
    else:
        row = retry_rule(error)
        tried = "no" if row is None else TRIED_AGAIN[row[1].limit > 1, row[1].same_target, row[1].limit > 0]
        start = f"| `{error.code}` | {error.status} | `{error.type}` | {tried} | "
        assert any(line.startswith(start) for line in ERRORS.splitlines()), start


def test_the_errors_page_lists_no_code_that_does_not_exist() -> None:
    assert set(first_cells(ERRORS)) == {error.code for error in errors_below(GatewayError)} - {ConfigError.code}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_and_each_of_its_options_are_documented(verb: str) -> None:
    section = re.search(rf"^### gateway {verb}\n(.*?)(?=^##|\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    assert section, f"docs/cli.md has no section 'gateway {verb}'"
    assert "](" in section[1], "no link to the page that explains the verb"
    for parameter in load_verb(verb).params:
        for word in parameter.opts if isinstance(parameter, click.Option) else [parameter.make_metavar(CONTEXT)]:
            named = re.escape(word.replace("|", "\\|"))
            row = re.search(rf"^\| `[^`]*{named}(?![\w-])[^`]*` \| (.+) \|$", section[1], re.MULTILINE)
            assert row, f"{word} has no row"
            assert getattr(parameter, "help", None), f"{word} has no help text"


CONTEXT = click.Context(click.Command("gateway"))


@pytest.mark.parametrize(("changed", "code"), [(False, 0), (True, 1)], ids=["the page", "an old page"])
def test_the_page_of_the_commands_is_compared_with_them(changed: bool, code: int, tmp_path: Path) -> None:
    (tmp_path / "cli.md").write_text(COMMANDS.replace("--no-serve", "--write", 1) if changed else COMMANDS)
    arguments = [sys.executable, "scripts/cli-reference", "--check", str(tmp_path / "cli.md")]
    assert subprocess.run(arguments, cwd=ROOT, capture_output=True, check=False).returncode == code


# ---------------------------------------------------------------- parity

PARITY = PAGES["docs/parity.md"]


def section(page: str, title: str) -> str:
    """The text below a heading of level 2."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_page_lists_every_case_of_the_matrix() -> None:
    listed = [
        name
        for line in section(PARITY, "The matrix").splitlines()
        if line.startswith("| ")
        for name in re.findall("`([^`]+)`", line.split("|")[2])
    ]
    assert sorted(listed) == sorted(case.name for case in matrix())
    assert f"a fixed matrix of {len(listed)} conversations" in PARITY


def test_every_cause_of_a_difference_has_its_line() -> None:
    assert first_cells(section(PARITY, "Causes")) == list(CAUSES)


# ---------------------------------------------------------------- commands and links


@each_page
def test_the_commands_of_a_page_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\w+)", code(PAGES[name])):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    for verb in re.findall(r"(?:^|[`/]|\$ |\| |=\S+ )gateway ([a-z]+)\b", code(PAGES[name]), re.MULTILINE):
        assert verb in {*VERBS, "help", "version"}, f"gateway {verb}"
    for script in re.findall(r"\bscripts/[\w-]+(?:\.py)?", code(PAGES[name])):
        assert (ROOT / script).exists(), script


@each_page
def test_the_links_of_a_page_have_a_target(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", PAGES[name]):
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), target


HOSTS = {
    "127.0.0.1",
    "ai-sdk.dev",
    "ai.pydantic.dev",
    "chat.example.org",
    "docs.litellm.ai",
    "docs.llamaindex.ai",
    "dspy.ai",
    "github.com",
    "huggingface.co",
    "inspect.aisi.org.uk",
    "keepachangelog.com",
    "llm.datasette.io",
    "python.useinstructor.com",
    "semver.org",
    "www.openresponses.org",
    "www.promptfoo.dev",
    "www.starlette.io",
    "www.w3.org",
}
"""The hosts to which pages link: projects' own pages and repositories, and no package index."""


@each_page
def test_a_page_links_to_known_hosts_only(name: str) -> None:
    assert set(re.findall(r"\]\(https?://([^/)\s:]+)", PAGES[name])) <= HOSTS


def test_messages_name_pages_that_the_package_has() -> None:
    files = [
        *[*(ROOT / "gateway").rglob("*.py"), *(ROOT / "metatemplate").rglob("*.py")],
        ROOT / "gateway.yaml",
        *(ROOT / "policies").glob("*.yaml"),
    ]
    texts = [path.read_text(encoding="utf-8") for path in files]
    named = {page for text in texts for page in re.findall(r"\(gateway docs ([\w/-]+)", text)}
    assert {"configuration", "import", "templates"} <= named
    assert [page for page in named if f"docs/{page}.md" not in PAGES] == []
    paths = [node for path in files if path.suffix == ".py" for node in strings_of(path) if "docs/" in node]
    assert [text for text in paths if "docs/spec" not in text] == ["docs/"]


PLACEHOLDER = re.compile(r"[A-Z]{3,}(?!\.md)")
"""A word in a path that stands for any name, such as ``KIND``."""
BASES = (ROOT, ROOT / "gateway", ROOT / "metatemplate")


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_files_and_classes_that_a_page_names_exist(name: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", PAGES[name], flags=re.MULTILINE | re.DOTALL))
    files = [one for one in spans if re.fullmatch(r"\w[\w.-]*(/[\w./-]*|\.py)", one) and not PLACEHOLDER.search(one)]
    known = {path.name for path in SOURCES}
    missing = [one for one in files if one not in known and not any((base / one).exists() for base in BASES)]
    classes = {one for one in spans if re.fullmatch(r"[A-Z]\w*[a-z]\w*", one)} - {"Host"}
    assert (missing, classes - set().union(*map(words_of, SOURCES))) == ([], set())


# ---------------------------------------------------------------- citations

CITATION = re.compile(r"docs/spec/(\w+\.md)(?:``)? ?((?:rows? )?(?:(?:[A-H]\d\d|\d+(?:\.\d+)*)(?:, |–| and | to )?)*)")
CITING = sorted(
    path for folder in ("gateway", "metatemplate", "tests", "bench") for path in (ROOT / folder).rglob("*.py")
)


def test_a_cited_section_or_row_exists() -> None:
    for path in CITING:
        text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
        for page, places in CITATION.findall(text):
            rules = (ROOT / "docs" / "spec" / page).read_text(encoding="utf-8")
            for place in re.findall(r"[A-H]\d\d|\d+(?:\.\d+)*", places):
                number = re.escape(place)
                found = rf"^(\| {number} \||#+ {number}\.? )"  # a row or a heading
                if place.startswith("0."):  # section 0 is a numbered list
                    found = rf"^{place[2:]}\. \*\*"
                assert re.search(found, rules, re.MULTILINE), f"{path.name}: {page} {place}"


# ---------------------------------------------------------------- names in docstrings

SOURCES = sorted([*(ROOT / "gateway").rglob("*.py"), *(ROOT / "metatemplate").rglob("*.py")])
FOREIGN_NAMES = {
    "AccEvaluator",
    "Authorization",
    "Encoding",
    "False",
    "None",
    "True",
    "StrictUndefined",
    "utils/chat_template_utils.py",
}
"""Names of Python, of HTTP and of libraries."""
NAME = re.compile(r"``([\w/]+\.py|[A-Z]\w*\.\w+|[A-Z]\w{3,})``")
"""A file, ``Class.attr``, a class or a constant."""


def strings_of(path: Path) -> list[str]:
    """The texts in a file's code that are not docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [one.value for one in nodes if isinstance(one, ast.Constant) and id(one) not in docstrings]
    return [text for text in texts if isinstance(text, str)]


def words_of(path: Path) -> set[str]:
    """Every name in a file's code, and every word in its texts that are not docstrings."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = {getattr(node, field, None) for node in nodes for field in ("name", "id", "attr", "arg")}
    words = {word for text in strings_of(path) for word in re.findall(r"\w+", text)}
    return words | {name for name in names if isinstance(name, str)}


def test_the_names_in_docstrings_exist() -> None:
    words = set().union(*map(words_of, SOURCES))
    paths = [f"/{path.relative_to(ROOT)}" for path in [*SOURCES, *(ROOT / "tests").rglob("*.py")]]

    def exists(name: str) -> bool:
        if name.endswith(".py"):
            return any(path.endswith(f"/{name}") for path in paths)
        return words.issuperset(name.split("."))

    unknown = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in NAME.findall(path.read_text(encoding="utf-8"))
        if name not in FOREIGN_NAMES and not exists(name)
    ]
    assert unknown == []
