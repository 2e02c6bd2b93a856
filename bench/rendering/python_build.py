"""The identity of a Python build: two renderers are compared only if one build runs both. Standard library only.

Two builds of one CPython release differ in speed by up to a quarter, depending on profile-guided optimisation. A build
does not report it reliably: Debian's is optimised and does not list ``--enable-optimizations`` among its options, and
builds without a profile list the flags for one. So the builds have to be identical.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 60.0
"""Seconds for another Python to print its build."""


class DifferentPython(Exception):
    """Two renderers run on different Python builds; the message names both and the remedy."""


def this_build() -> str:
    """The running build: ``CPython 3.11.2 (main, May 12 2026, 05:17:27) [GCC 12.2.0], program 1f0c…``.

    All flavours of a distribution's release share version and date, so a digest of the executable, and of its shared
    library if there is one, is part of it. Virtual environments of one Python share both files.
    """
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    shared = [library] if library.suffix != ".a" and library.is_file() else []
    digest = sha256(b"".join([path.read_bytes() for path in (Path(sys.executable).resolve(), *shared)])).hexdigest()
    version = " ".join(sys.version.split())
    return f"{platform.python_implementation()} {version}, program {digest[:12]}"


def result_json(metrics: Mapping[str, float]) -> str:
    """The last line that a renderer prints: its metrics and its Python build."""
    return json.dumps({"python": this_build(), "metrics": metrics})


def build_of(python: str) -> str:
    """The build of another Python. Raises ``DifferentPython`` if it cannot be determined."""
    command = [python, "-m", "bench.rendering.python_build"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT, cwd=ROOT)
    except (OSError, subprocess.SubprocessError) as error:
        raise DifferentPython(
            f"the Python build of {python} is unknown ({error}); give the bin/python of an environment"
        ) from error
    if not (build := done.stdout.strip()):
        raise DifferentPython(f"the Python build of {python} is unknown; give the bin/python of an environment")
    return build


def check_same_build(name: str, build: str) -> None:
    """Raise ``DifferentPython`` unless ``build`` is the running one."""
    if build != this_build():
        raise DifferentPython(
            f"{name} runs on {build}, the gateway on {this_build()}; different builds alone differ in speed by up to a "
            "quarter. Create its environment from the gateway's Python (docs/prompters.md, Speed), or pass "
            "--any-python to compare anyway"
        )


if __name__ == "__main__":
    print(this_build())
