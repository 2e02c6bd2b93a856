"""A job for the tests of ``LimitedProcess``."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from metatemplate.limited_process.process import Reply


def do_job(job: Mapping[str, str]) -> Reply:
    """Do what ``job["do"]`` names."""
    match job["do"]:
        case "loop":
            while True:
                pass
        case "be killed":
            with Path(job["log"]).open("a") as log:
                print(os.getpid(), file=log)
            if len(Path(job["log"]).read_text().splitlines()) <= int(job["times"]):
                os.kill(os.getpid(), signal.Signals[job["signal"]])
        case "raise":
            raise ValueError
        case "allocate":
            return {}, "x" * 2_000_000_000
    return {"pid": os.getpid()}, job["do"]
