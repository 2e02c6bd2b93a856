"""Serve the demo: a small model that adds numbers, once with the right template and once with a wrong template.

The demo comes with the gateway. Its files are copied to FOLDER, where you can change them: gateway.yaml, the model, its
template, dataset prompts, and sums.jsonl, twenty sums with their answers for gateway run. By default FOLDER is a
temporary folder, which is deleted at the end. If FOLDER already contains a gateway.yaml, nothing is copied, and that
configuration is served.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from gateway.cli.options import FILE_PATH, CommandError, print_note, verb
from gateway.cli.verbs import serve

EXAMPLES = """Examples:
  gateway demo
  gateway demo my-folder --port 9000
  gateway demo my-folder --no-serve                only write the files
  gateway ask demo "1+1=?"                         in a second terminal
  gateway ask demo-wrong-template "1+1=?"
"""
DEMO = {
    "gateway.yaml": "gateway.yaml",
    "prompts": "prompts",
    "demo/model": "demo/model",
    "meta_templates/sft-demo.yaml": "meta_templates/sft-demo.yaml",
    "sums.jsonl": "demo/sums.jsonl",
}
"""File or folder of the demo → its place in the folder of the shipped data."""


@verb(__doc__, EXAMPLES)
@click.argument("folder", type=FILE_PATH, required=False, metavar="[FOLDER]", help="a folder for the demo's files")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    show_default="that of gateway.yaml, at first 8000",
    help="the port on 127.0.0.1",
)
@click.option("--no-serve", is_flag=True, help="write the files to FOLDER, and do not serve them")
def command(folder: Path | None, port: int | None, no_serve: bool) -> int:
    """Serve the demo until a signal ends the process."""
    if folder is not None:
        return _serve(folder, port, no_serve)
    if no_serve:
        raise click.UsageError("--no-serve needs FOLDER", click.get_current_context())
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as scratch:
        return _serve(Path(scratch), port, no_serve)


def _serve(folder: Path, port: int | None, no_serve: bool) -> int:
    copy_demo(folder)
    print_note(f"the demo's files are in {folder}")
    if no_serve:
        return 0
    address = "" if port is None else f" --url http://127.0.0.1:{port}"
    print_note(f'in a second terminal: gateway ask demo "1+1=?"{address}')
    assert serve.command.callback is not None
    return int(
        serve.command.callback(config=folder / "gateway.yaml", host=None, port=port, log_level="info", log_format=None)
    )


def copy_demo(folder: Path) -> None:
    """Copy the demo's files to a folder, unless it contains a ``gateway.yaml``.

    Raises ``CommandError`` if one of the other files exists already.
    """
    from gateway.config.library import shipped_data, shipped_folder

    if (folder / "gateway.yaml").exists():
        return
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file; give a folder for the demo")
    if taken := [str(folder / name) for name in DEMO if (folder / name).exists()]:
        raise CommandError(f"{taken[0]} exists and is not overwritten; give another folder for the demo")
    for name, place in DEMO.items():
        source, target = shipped_data() / place, folder / name
        if place.startswith("meta_templates/"):
            source = shipped_folder("meta_templates") / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
