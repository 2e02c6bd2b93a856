"""Do two programs run on the same Python? Standard library only: the originals' environments read this file too.

Two builds of one CPython release differ by a quarter in speed, by whether the compiler was shown a profile. The build
itself does not say so: Debian's is made with one and lists no ``--enable-optimizations`` among its options, and the
flags for a profile are listed by builds that never saw any. So nothing is guessed: the builds have to be the same.
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

SECONDS = 60.0
"""For a Python to say what it is."""


class OtherPython(Exception):
    """What shall be compared runs on different Pythons; the message says which, and what to do."""


def build() -> str:
    """The Python that runs this: ``CPython 3.11.2 (main, May 12 2026, 05:17:27) [GCC 12.2.0], program 1f0c…``.

    Version and date are not enough: a distribution gives all flavours of a release the same. So a digest of the program
    itself comes with them, and of its library, if it has one; environments of one Python share both.
    """
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    shared = [library] if library.suffix != ".a" and library.is_file() else []
    program = sha256(b"".join([path.read_bytes() for path in (Path(sys.executable).resolve(), *shared)]))
    version = " ".join(sys.version.split())
    return f"{platform.python_implementation()} {version}, program {program.hexdigest()[:12]}"


def report(numbers: Mapping[str, float]) -> str:
    """What a program that renders prints last: its numbers, and the Python they are of."""
    return json.dumps({"python": build(), "numbers": numbers})


def build_of(python: str) -> str:
    """The build of another Python. Raises OtherPython if it cannot be asked."""
    try:
        done = subprocess.run([python, __file__], capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise OtherPython(
            f"{python} does not say which Python it is ({error}); name an environment's bin/python"
        ) from error
    said = done.stdout.strip()
    if not said:
        raise OtherPython(f"{python} does not say which Python it is; name an environment's bin/python")
    return said


def check_same(name: str, theirs: str) -> None:
    """Raises OtherPython unless ``theirs`` is the build that runs this."""
    if theirs != build():
        raise OtherPython(
            f"{name} runs on {theirs}, the gateway on {build()}: another build, which alone can make a quarter of "
            "difference. Make an environment for it from the gateway's Python (docs/prompters.md, Speed), or say "
            "--any-python to compare anyway"
        )


if __name__ == "__main__":
    print(build())
