"""Show a run in a browser: what its answers are, and the rows behind each number; or why two runs differ.

A and B are output files of gateway run, files of recordings, or names of runs in the recordings of gateway.yaml. The
pages are served on 127.0.0.1 until Ctrl-C. They need no running gateway, and show only these runs. The printed address
works once: it signs in one browser.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from gateway.cli.options import (
    CommandError,
    argument,
    config_option,
    flag,
    option,
    parameter,
    takes,
    verb,
)
from gateway.cli.score_options import ScoreOptions
from gateway.core.errors import CONFIG_FAILED

if TYPE_CHECKING:
    from gateway.viewer.runs.files import RunFiles

CLOSE_SECONDS = 1.0
"""Seconds to wait at the end for answers that are being sent."""
EXAMPLES = """Examples:
  gateway view answers.jsonl
  gateway view answers.jsonl --score exact                compare with the kept column "answer"
  gateway view monday.jsonl tuesday.jsonl --score exact   why the answers differ
  gateway view lm-eval evalscope --match question         two harnesses
  gateway view nightly --scores out                       with the scores of a harness
  gateway view nightly-7 --no-browser --port 8002         a run in the recordings of gateway.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(ScoreOptions):
    """The options of ``gateway view``."""

    a: str = argument(metavar="A")
    """a run"""
    b: str | None = argument(metavar="[B]", required=False)
    """a second run, to compare with A"""
    match: str = option("id|question", type=click.Choice(["id", "question"]), default="id")
    """how rows of the two runs match: by id or request, or by the text of the question"""
    port: int = option("PORT", type=click.IntRange(0, 65535), default=0, show_default="a free port")
    """the port on 127.0.0.1"""
    no_browser: bool = flag()
    """only print the address"""
    config: Path = parameter(config_option)


@verb(__doc__, EXAMPLES)
@takes(ViewOptions)
def command(options: ViewOptions) -> int:
    """Serve the pages until a signal ends the process."""
    from gateway.evaluate.reporting.source import read_scored_runs, reading, scores_of
    from gateway.server.sockets import PortBusy, bind
    from gateway.viewer.runs.files import RunFiles

    runs = [options.a] if options.b is None else [options.a, options.b]
    with reading() as files:  # problems of the command line are found before the first page
        paths = scores_of(runs, options.scores, options.score)
        for run, rows in zip(runs, read_scored_runs(files, runs, options.config, options), strict=True):
            if next(iter(rows), None) is None:
                raise CommandError(f"{run} has no rows, so there is nothing to show")
    try:
        bound = bind("127.0.0.1", options.port, choose="another port with --port")
    except PortBusy as error:
        raise CommandError(str(error), CONFIG_FAILED) from None
    source = RunFiles(runs, paths, options.config, options)
    with bound:
        match = {} if options.match == "id" else {"match": options.match}
        asyncio.run(_serve(source, bound, not options.no_browser, match))
    return 0


async def _serve(source: RunFiles, bound: socket.socket, browser: bool, match: dict[str, str]) -> None:
    """Print the address, open a browser, and serve until SIGINT or SIGTERM: a gateway without models, with one viewer.

    The address is that of the report of the run, or of the comparison of two. ``match``: see ``ViewOptions``.
    """
    from gateway.config.snapshot import ServerSpec, Snapshot
    from gateway.edge.app import App
    from gateway.edge.http1.server import HttpServer
    from gateway.edge.session import TOKEN, Signer
    from gateway.evaluate.running.gateways import running, serving
    from gateway.viewer.viewer import ROOT, Viewer

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with running(Path(), Snapshot(ServerSpec(), {})) as runtime:
        viewer = Viewer(runtime.state, runs=source)
        runtime.pages.append(viewer)
        page, names = ("report", ["run"]) if len(source.names) == 1 else ("why", ["a", "b"])
        token = Signer(runtime.viewer_secret).token(TOKEN)
        query = {**dict(zip(names, source.names, strict=True)), **match, TOKEN: token}
        url = f"http://127.0.0.1:{bound.getsockname()[1]}{ROOT}/runs/{page}?{urlencode(query)}"
        async with serving(HttpServer(App(runtime.state, viewer=viewer)), bound, CLOSE_SECONDS):
            click.echo(f"the pages are at {url}  (Ctrl-C ends)", err=True)
            if browser:
                await asyncio.to_thread(webbrowser.open, url)
            await ended.wait()
