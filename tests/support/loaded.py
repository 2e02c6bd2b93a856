"""The modules of the project that a gateway has imported, and their lines of code.

``python tests/support/loaded.py FILE`` is ``gateway serve`` in the current folder; it appends the name of each module
of the project to FILE when the module is imported.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gateway", "metatemplate")

STRING_MODEL = """
models:
  m: {template: chatml, targets: [{speaks: completions, url: URL, model: m}]}
"""
CHAT_MODEL = """
models:
  m: {template: chat, targets: [{speaks: chat, url: URL, model: m}]}
"""
EVERYTHING = """
keys: {file: keys.yaml}
redact: [email]
recordings: {path: calls.sqlite}
models:
  m: {template: chatml-tools, policy: all, targets: [{speaks: completions, engine: vllm, url: URL, model: m}]}
  api: {template: api, policy: all, targets: [{speaks: chat, engine: vllm, url: URL, model: m}], fallback: [m]}
  agent: {template: chat, policy: agents, targets: [{speaks: chat, url: URL, model: m}]}
  opencompass: {template: internlm2, targets: [{speaks: completions, url: URL, model: m}]}
  prompter: {template: lazyllm-qwen, targets: [{speaks: completions, url: URL, model: m}]}
  prompter-api: {template: lazyllm-qwen, targets: [{speaks: chat, url: URL, model: m}]}
  chat-template: {template: chat-template, targets: [{speaks: completions, url: URL, model: m}]}
  scripted: {template: base, targets: [{speaks: scripted, script: hello.yaml}]}
  provider: {template: chat, targets: [{speaks: litellm, url: URL, model: openai/m, key: "env:PATH"}]}
"""
CONFIGURATIONS: Mapping[str, str] = {
    "two endpoints of a string model": f"server: {{endpoints: [chat, completions]}}{STRING_MODEL}",
    "string model": STRING_MODEL,
    "chat model": CHAT_MODEL,
    "everything": EVERYTHING,
}
"""Name → ``gateway.yaml`` with ``URL`` in place of the address of an OpenAI-compatible server."""
FILES = {
    "keys.yaml": "k: {sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b}\n",
    "hello.yaml": "[Hello, {finish: stop}]",
    "policies/all.yaml": "record: full\ncache: {mode: 'on', coalesce: true}\ndelivery: {fallback: true}\n",
    "policies/agents.yaml": "reasoning: replay\n",
    "prompts/sum.yaml": "input_columns: [question]\nprompt_template: {template: '{question} = '}\n",
    "meta_templates/chat-template.yaml": """
kind: jinja
template: "{% for message in messages %}{{ message.content }}{% endfor %}"
""",
}
"""The files beside the configuration with everything. The client key is ``secret``."""


def files_of(name: str, url: str) -> dict[str, str]:
    """The files of a configuration. ``url``: the address of the models' server."""
    config = {"gateway.yaml": CONFIGURATIONS[name].replace("URL", json.dumps(url))}
    return {**FILES, **config} if name == "everything" else config


def command(modules: Path) -> tuple[str, str]:
    """Python's arguments for a gateway that lists its modules in a file."""
    return str(Path(__file__)), str(modules)


def imported(modules: Path) -> set[str]:
    """The modules in the file: an import of a name that is no module is listed there too."""
    return {one for one in modules.read_text(encoding="ascii").split() if file_of(one).exists()}


def is_text(node: ast.expr) -> bool:
    """Whether an expression is a string, as docstrings are."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def code_lines(path: Path) -> int:
    """The lines of a file that are code: no imports, docstrings, comments and blank lines."""
    text = path.read_text(encoding="utf-8")
    kept = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and is_text(node.value)):
            kept -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(kept & {number for number, line in enumerate(text.splitlines(), 1) if line.strip()})


def file_of(module: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class ImportNotes(MetaPathFinder):
    """Writes the name of each module of the project that is looked up, and finds none."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="ascii", buffering=1)

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Note the module."""
        if fullname.partition(".")[0] in PACKAGES:
            print(fullname, file=self._file)


if __name__ == "__main__":
    sys.meta_path.insert(0, ImportNotes(Path(sys.argv[1])))
    sys.argv = ["gateway", "serve"]
    resolve_name("gateway.cli:main")()
