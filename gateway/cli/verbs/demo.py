"""Serve the demo: a small model that adds numbers, once with the right template and once with a wrong template.

The demo comes with the gateway. Its files are copied to FOLDER, where you can change them. By default FOLDER is a
temporary folder. If FOLDER already contains a gateway.yaml, nothing is copied, and that configuration is served.
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
  gateway ask demo "1+1=?"                         in a second terminal
  gateway ask demo-wrong-template "1+1=?"
"""
DEMO = ("gateway.yaml", "prompts", "demo/model")
"""The files and folders of the demo, relative to the folder of the shipped data."""


@verb(__doc__, EXAMPLES)
@click.argument("folder", type=FILE_PATH, required=False, metavar="[FOLDER]", help="a folder for the demo's files")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="PORT", help="the port on 127.0.0.1")
def command(folder: Path | None, port: int) -> int:
    """Serve the demo until a signal ends the process."""
    if folder is not None:
        return _serve(folder, port)
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as scratch:
        return _serve(Path(scratch), port)


def _serve(folder: Path, port: int) -> int:
    copy_demo(folder)
    print_note(f"the demo's files are in {folder}")
    address = "" if port == 8000 else f" --url http://127.0.0.1:{port}"
    print_note(f'in a second terminal: gateway ask demo "1+1=?"{address}')
    assert serve.command.callback is not None
    return int(
        serve.command.callback(config=folder / "gateway.yaml", host=None, port=port, log_level="info", log_format=None)
    )


def copy_demo(folder: Path) -> None:
    """Copy the demo's files to a folder, unless it contains a ``gateway.yaml``.

    Raises ``CommandError`` if one of the other files exists already.
    """
    from gateway.config.library import shipped_data

    if (folder / "gateway.yaml").exists():
        return
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file; give a folder for the demo")
    if taken := [str(folder / name) for name in DEMO if (folder / name).exists()]:
        raise CommandError(f"{taken[0]} exists and is not overwritten; give another folder for the demo")
    for name in DEMO:
        source, target = shipped_data() / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
