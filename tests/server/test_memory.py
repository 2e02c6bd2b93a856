"""Whose choice is it what the allocator keeps?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.server.memory import MALLOC_VARIABLES
from tests.journeys.process import environment

PROBE = """
import ctypes
from gateway.server.memory import tune_memory

libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt"):
    print("no glibc")
    raise SystemExit
tune_memory()
libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
before = int(open("/proc/self/statm").read().split()[1])
blocks = [libc.malloc(8 << 20) for _ in range(4)]
for block in blocks:
    ctypes.memset(block, 1, 8 << 20)
for block in blocks:
    libc.free(block)
after = int(open("/proc/self/statm").read().split()[1])
print("kept" if after - before > (16 << 20) // 4096 else "given back")
"""


def kept(**given: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", PROBE], env={**environment(), **given}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_freed_memory_is_kept_unless_the_operator_has_decided() -> None:
    ours = kept()
    if ours == "no glibc":
        pytest.skip("this C library has no mallopt, so nothing is set")
    assert ours == "kept"
    assert kept(GLIBC_TUNABLES="glibc.malloc.trim_threshold=131072") == "given back"
    assert kept(MALLOC_TRIM_THRESHOLD_="131072") == "given back"
    assert "LD_PRELOAD" in MALLOC_VARIABLES
