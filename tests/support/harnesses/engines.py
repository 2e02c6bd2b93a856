"""The columns of the four tables: the engines of tests/engines, LiteLLM in front of one of them, and a wrong template.

Where clients ask for objects of a type, the columns are the engines that can constrain an answer: fakes and real ones.
For agents they are a fake that calls the agents' functions, behind a string model and behind LiteLLM. For one function
they are fakes that call it as models of several families do, behind the templates that these are published with.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.metatemplate.answers.published import Writer, function, template_files
from tests.support.engines.engine import ENGINES, MODEL, NAME, Engine
from tests.support.upstream.modes_constraint import DIALECTS
from tests.support.upstream.server import FaultyUpstream

WRONG_TEMPLATE = "chatml"
"""A template that the demo model was not trained on."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The same format as a chat template, for clients that apply the tokenizer's."""

COLUMNS = {
    **ENGINES,
    "litellm": replace(
        ENGINES["numpy"],
        name="litellm",
        title="LiteLLM",
        target=f'speaks: litellm, model: "hosted_vllm/{NAME}", url: "{{url}}"',
        template="chat",
        refusals={"completions": "invalid_value"},
    ),
    "wrong-template": replace(
        ENGINES["embedded"],
        name="wrong-template",
        title="embedded, wrong template",
        template=WRONG_TEMPLATE,
    ),
}


class FakeEngine(Engine):
    """A server of ``tests/support/upstream`` that answers with the JSON that the engine ``name`` is constrained to."""

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``; it runs in this process."""
        with FaultyUpstream() as server:
            yield server.url(f"constrained-{self.name.removeprefix('fake-')}")


OBJECT_COLUMNS = {
    **{
        f"fake-{engine}": FakeEngine(
            name=f"fake-{engine}",
            title=f"{title} (fake)",
            command=None,
            target=f'speaks: completions, url: "{{url}}", engine: {engine}',
        )
        for engine, title in zip(DIALECTS, ("vLLM", "SGLang", "llama.cpp"), strict=True)
    },
    "vllm": ENGINES["vllm"],
    "embedded": replace(ENGINES["embedded"], refusals={"json_schema": "unsupported_parameter"}),
}
"""The engines that can constrain an answer, and one that cannot."""


AGENT_CALLS = (
    ("multi_agent_v1__close_agent", {"target": "none"}),
    ("exec_command", {"cmd": "wc -l < sums.jsonl"}),
)
"""The calls of the fake that agents ask: a function in a namespace, and a command."""


class FakeAgentModel(Engine):
    """A server of ``tests/support/upstream`` that calls the functions of ``AGENT_CALLS``, and repeats the output."""

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``; it runs in this process."""
        with FaultyUpstream() as server:
            yield server.url("agent", calls=json.dumps(AGENT_CALLS))


AGENT_COLUMNS = {
    "fake-string": FakeAgentModel(
        name="fake-string",
        title="string model (fake vLLM)",
        command=None,
        target='speaks: completions, url: "{url}", engine: vllm',
        template="chatml-tools",
    ),
    "fake-litellm": FakeAgentModel(
        name="fake-litellm",
        title="LiteLLM (fake)",
        command=None,
        target='speaks: litellm, model: hosted_vllm/tiny, url: "{url}"',
        template="chat",
    ),
}
"""The models that call the functions of agents."""


class FakeFamily(Engine):
    """A server of ``tests/support/upstream`` that calls ``add`` as the model family ``title`` does."""

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``; it runs in this process."""
        answer = Writer(self.title).written([function("add", {})], [("add", {"a": 12, "b": 34})], "I add.")
        with FaultyUpstream() as server:
            yield server.url("text", text=answer.text, then="46", when="46")


CALL_COLUMNS = {
    name: FakeFamily(
        name=name,
        title=family,
        command=None,
        target='speaks: completions, url: "{url}", engine: vllm',
        template=name,
        files=template_files(family, name),
    )
    for name, family in (
        ("qwen3-coder", "Qwen3-Coder"),
        ("glm", "GLM-4.5"),
        ("kimi", "Kimi K2"),
        ("gpt-oss", "gpt-oss"),
    )
}
"""Model families whose templates have tools. The fakes write what these templates write for a call."""


def tokenizer(engine: Engine, folder: Path) -> Path:
    """The tokenizer's folder for an engine's clients: the demo model's, or a copy with ``CHATML`` in ``folder``."""
    if engine.template != WRONG_TEMPLATE:
        return MODEL
    copied = folder / "tokenizer"
    shutil.copytree(MODEL, copied, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    (copied / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return copied
