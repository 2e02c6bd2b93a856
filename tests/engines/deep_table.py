"""The verdicts of ``gateway check --live --deep`` on every engine, as right settings and as wrong settings give them.

``python -m tests.engines.deep_table`` runs all engines that are installed, and writes ``deep.json``: engine → version,
command, date, and the verdict of each probe; below that the evidence for each wrong setting. ``test_deep.py`` compares.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.cli.command import command
from tests.support.engines.engine import ENGINES, GGUF, MODEL, NAME, Engine, engines_folder
from tests.support.serving import gateway, run_uvicorn, write_files

TABLE = Path(__file__).parent / "deep.json"
TEMPLATE = """\
round:
  - {role: HUMAN, begin: "<HUMAN>: ", end: "<eoh>\\n"}
  - {role: BOT, begin: "<BOT>: ", end: "<eob>\\n", generate: true}
  - {role: SYSTEM, begin: "<SYSTEM>: ", end: "<eosys>\\n"}
begin: "<s>"
bos: text
bos_text: "<s>"
"""
"""The demo model's format with a BOS in the text."""

Report = dict[str, Any]


class LlamaServer(Engine):
    """llama.cpp's own server, compiled by hand from the sources in the package ``llama-cpp-python`` 0.3.36.

    ``cmake -S vendor/llama.cpp -B build -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF`` and
    ``make -C build llama-server``; then ``build/bin`` is the folder ``llama-server/bin`` of the engines.
    """

    def is_installed(self, engines: Path) -> bool:
        return (engines / self.name / "bin" / "llama-server").exists()

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``."""
        assert self.command is not None
        program = self.command(engines / self.name / "bin", 0)
        started = replace(
            ENGINES["llama-cpp"],
            name=self.name,
            title=self.title,
            packages=None,
            command=lambda _, port: [*program[:-1], str(port)],
            ready=self.ready,
        )
        with started.running(engines, work) as url:
            yield url


class Embedded(Engine):
    """The engine in a gateway that is served."""

    @contextmanager
    def running(self, engines: Path, work: Path) -> Iterator[str]:
        """See ``Engine``."""
        work.mkdir(parents=True, exist_ok=True)
        path = MODEL if self.command is None else self.command(work, 0)[0]
        config = (
            f"models:\n  {NAME}: {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: {path}}}]}}\n"
        )
        with gateway(work, config) as served:
            yield served.url


def _llama_server(bin_folder: Path, port: int) -> list[str]:
    return [
        *(f"{bin_folder}/llama-server", "--model", str(GGUF), "--alias", NAME, "--ctx-size", "2048", "--parallel", "2"),
        *("--threads", "1", "--host", "127.0.0.1", "--port", str(port)),
    ]


CHECKED: Mapping[str, Engine] = {
    **{name: engine for name, engine in ENGINES.items() if engine.command is not None},
    "embedded": Embedded(
        name="embedded",
        title="embedded, through a gateway",
        command=None,
        target=f'speaks: completions, url: "{{url}}", model: {NAME}, adds_bos: true',
    ),
    "llama-server": LlamaServer(
        name="llama-server",
        title="llama-server",
        command=_llama_server,
        target=f'speaks: completions, url: "{{url}}", model: {NAME}, engine: llamacpp',
        ready="/health",
    ),
}
"""The engines by name, as right settings describe them."""


SAME_NAME = frozenset(CHECKED) - {"transformers"}
"""The engines that can serve other weights under the same name."""


# ---------------------------------------------------------------- wrong settings


@contextmanager
def altered(url: str, change: Callable[[dict[str, Any]], object]) -> Iterator[str]:
    """Serve an engine through a proxy that changes the body of each request."""

    async def forward(request: Request) -> Response:
        body = await request.body()
        if body:
            fields = json.loads(body)
            change(fields)
            body = json.dumps(fields).encode()
        headers = {"content-type": "application/json"} if body else {}
        http = httpx.AsyncClient(timeout=120, trust_env=False)
        path = f"{url.removesuffix('/v1')}{request.url.path}"
        answer = await http.send(http.build_request(request.method, path, content=body, headers=headers), stream=True)

        async def pieces() -> Any:
            async for piece in answer.aiter_raw():
                yield piece
            await answer.aclose()
            await http.aclose()

        return StreamingResponse(pieces(), answer.status_code, media_type=answer.headers.get("content-type"))

    app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])])
    with run_uvicorn(app) as port:
        yield f"http://127.0.0.1:{port}/v1"


def other_weights(engine: Engine, folder: Path) -> Engine:
    """Return the engine with another model of the same tokenizer, which it serves under the same name."""
    model = Path(shutil.copytree(MODEL, folder / "other"))
    swapped = {str(MODEL): str(model), str(GGUF): str(folder / "other.gguf")}
    negate_weights(MODEL / "model.safetensors", model / "model.safetensors")
    negate_weights(GGUF, folder / "other.gguf")
    if engine.name == "embedded":
        return replace(engine, command=lambda *_: [str(model)])
    run = engine.command
    assert run is not None
    return replace(engine, command=lambda *given: [swapped.get(word, word) for word in run(*given)])


def negate_weights(source: Path, target: Path) -> None:
    """Copy a file of weights, and change the signs of the last 50 000, which are 16-bit floats."""
    data = bytearray(source.read_bytes())
    for at in range(len(data) - 100_001, len(data), 2):
        data[at] ^= 0x80
    target.unlink(missing_ok=True)
    target.write_bytes(data)


def rename_stops(fields: dict[str, Any]) -> None:
    if fields.get("stop"):
        fields["stop"] = ["<never>"]


MISTAKES: Mapping[str, str] = {
    "template": "chat prompt",
    "BOS": "string prompt",
    "ignored parameter": "seed",
    "wrong stop": "stop",
    "other weights": "same model",
}
"""Wrong setting → the probe that must name it."""


def configuration(engine: Engine, url: str, template: str = "", **target: str) -> str:
    """Return a gateway.yaml with one engine as the model ``demo``."""
    given = engine.target.format(url=url) + "".join(f", {key}: {value}" for key, value in target.items())
    rest = f"template: {template or engine.template}, policy: eval, tokenizer: {MODEL}"
    return f"models:\n  demo: {{{rest}, targets: [{{{given}}}]}}\n"


def check(folder: Path, config: str, *arguments: str) -> Report:
    """Run the deep check on the model ``demo``; the report, or the error as ``{"error": …}``."""
    write_files(folder, {"gateway.yaml": config, "meta_templates/writes-bos.yaml": TEMPLATE})
    ended = command(folder, "check", "--live", "--deep", "demo", "--json", "--timeout", "120", *arguments)
    if not ended.stdout:
        return {"error": ended.stderr.decode(), "probes": []}
    report: Report = json.loads(ended.stdout)
    return report


def verdicts(report: Report) -> dict[str, str]:
    """Return probe → verdict."""
    return {one["probe"]: one["verdict"] for one in report["probes"]}


def red(report: Report) -> dict[str, str]:
    """Return the probes that differ, each with its evidence."""
    return {one["probe"]: one["evidence"] for one in report["probes"] if one["verdict"] == "differs"}


def mistaken(engine: Engine, url: str, folder: Path, mistake: str) -> Report:
    """Check a running engine with a wrong setting, which is not ``other weights``."""
    folder.mkdir(parents=True, exist_ok=True)
    if mistake == "template":
        return check(folder, configuration(engine, url, "chatml"))
    if mistake == "BOS":  # the template writes a BOS, and the gateway does not know that the engine adds one
        plain = f'speaks: completions, url: "{{url}}", model: "{engine.model}", adds_bos: false'
        return check(folder, configuration(replace(engine, target=plain), url, "writes-bos"))
    change = rename_stops if mistake == "wrong stop" else lambda fields: fields.pop("seed", None)
    with altered(url, change) as wrong:
        return check(folder, configuration(engine, wrong))


def whole(engine: Engine, engines: Path, folder: Path) -> Report:
    """Run an engine with right settings and with every wrong one; the row of the table."""
    saved = folder / "saved.json"
    with engine.running(engines, folder / "engine") as url:
        folder.joinpath("right").mkdir()
        report = check(folder / "right", configuration(engine, url), "--save", str(saved))
        print(f"{engine.name}: {verdicts(report) or report}", file=sys.stderr)
        wrong = {
            mistake: red(mistaken(engine, url, folder / mistake, mistake))
            for mistake in MISTAKES
            if mistake != "other weights"
        }
    if engine.name in SAME_NAME:
        with other_weights(engine, folder).running(engines, folder / "other-engine") as url:
            folder.joinpath("weights").mkdir()
            report_against = check(folder / "weights", configuration(engine, url), "--against", str(saved))
            wrong["other weights"] = red(report_against)
    packages = [] if engine.packages is None else [*engine.packages.names]
    return {
        "engine": report.get("engine"),
        "packages": packages,
        "date": report.get("date", "")[:10],
        "command": "gateway check --live --deep demo --json",
        "requests": report.get("requests"),
        "probes": {one["probe"]: {"verdict": one["verdict"], "evidence": one["evidence"]} for one in report["probes"]},
        "mistakes": wrong,
    }


def markdown(table: Mapping[str, Any]) -> str:
    """Return the table of ``docs/engine-check.md``."""
    lines = ["| Engine | Differs | Could not check | Date |", "|---|---|---|---|"]
    for name, row in table.items():
        of = {
            verdict: ", ".join([f"`{probe}`" for probe, one in row["probes"].items() if one["verdict"] == verdict])
            for verdict in ("differs", "could not check")
        }
        version = [row["engine"]] if row["engine"].split()[-1] != "known" else row["packages"][-1:]
        title = f"{CHECKED[name].title} ({version[0]})" if version else CHECKED[name].title
        lines.append(f"| {title} | {of['differs'] or '–'} | {of['could not check'] or '–'} | {row['date']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the engines that the command line names, and write their rows; 1 if a mistake was not named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "engines", nargs="*", metavar="ENGINE", help=f"default: those that are installed of {[*CHECKED]}"
    )
    given = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    engines, missed = engines_folder(), 0
    for name in given.engines or [name for name, one in CHECKED.items() if one.is_installed(engines)]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            table[name] = whole(CHECKED[name], engines, folder)
        for mistake, probe in MISTAKES.items():
            if probe not in table[name]["mistakes"].get(mistake, {}):
                missed += 1
                print(f"{name}: {mistake} is not named by {probe}: {table[name]['mistakes'].get(mistake)}")
        TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
