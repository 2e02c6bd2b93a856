"""Compiles the modules that a call passes through, with mypyc. Their source stays as it is.

``python scripts/compiled.py`` builds beside the sources (``make compiled``), ``--remove`` removes what was built
(``make pure``). hatchling runs the same as a build hook of a wheel: off by default, on with
``HATCH_BUILD_HOOK_ENABLE_CUSTOM=1``, and never with ``GATEWAY_PURE=1``.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import chain
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build/mypyc")
MODULES = {
    "": "version",
    "backend/http_client": "client connection",
    "backend/openai": "base chat completions embeddings upstream_request",
    "backend/openai/answer": "events fast_stream response_body",
    "backend/openai/request": "bos neutral_values request_body",
    "calls": "fallback route run timeline",
    "calls/admission": "access admit",
    "calls/answer": "cut_answers response token_data",
    "calls/preparation": "prepare",
    "core": "call caller dialogue events exchange json_values prompt text_splice",
    "edge": "app cancellation http_request provenance",
    "edge/endpoints": "writer",
    "edge/http1": "connection request server state",
    "policy/access": "limits",
    "policy/admit": "media parameters",
    "policy/deliver": "deadline first_token_gate layer timeouts",
    "policy/deliver/targets": "failover load_balancer retry_budget",
    "policy/markers": "role_boundaries",
    "stream": "batches completion_builder finish_reason output_parser reasoning sse stages surrogates",
    "stream/stops": "stop_cutter stop_search token_alignment",
    "stream/tool_calls": "scanner",
    "telemetry": "attempts call_log log_event log_writer metrics record",
    "template": "layout",
    "template/meta": "renderer tools",
    "template/opencompass": "joined renderer",
    "wire": "json requests responses",
    "wire/responses_api": "writer",
}
"""Folder of ``gateway`` → its modules that are compiled. Others are read by pydantic, are needed only when a
configuration is loaded, or use what mypyc cannot compile: coroutines that wait while they handle an exception,
asynchronous generators, weak references to their objects, keywords of classes, checks for a protocol at run time,
numbers that stay int or float as they came."""


class CompiledBuildHook(BuildHookInterface[Any]):
    """Puts the compiled modules into a wheel, beside their sources, and the platform into the name of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """hatchling calls this before a wheel is written."""
        if os.environ.get("GATEWAY_PURE", "0") != "0" or version == "editable":
            return
        libraries = build(ROOT / BUILD / "wheel")
        build_data |= {"pure_python": False, "infer_tag": True}
        build_data["force_include"] |= {str(path): str(path.relative_to(ROOT / BUILD / "wheel")) for path in libraries}


def build(folder: Path | None) -> list[Path]:
    """Compile the modules into ``folder``, or beside their sources. Returns the libraries in ``folder``."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    os.chdir(ROOT)
    shutil.rmtree(BUILD, ignore_errors=True)
    sources = [str(Path("gateway", place, f"{name}.py")) for place, names in MODULES.items() for name in names.split()]
    # `make check` has checked the types of packages; without them the build is the same in every environment, and fast.
    options = ["--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent"]
    extensions = mypycify(
        [*options, *sources],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        group_name="gateway",
        target_dir=str(BUILD),
    )
    command = Distribution({"name": "gateway", "ext_modules": extensions}).get_command_obj("build_ext")
    command.inplace, command.build_temp = folder is None, str(BUILD / "objects")
    command.build_lib = str(folder) if folder else None
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    return sorted(folder.rglob("*.so")) if folder else []


def remove() -> None:
    """Remove the compiled modules beside the sources."""
    for path in chain(ROOT.glob("gateway__mypyc*.so"), (ROOT / "gateway").rglob("*.so")):
        path.unlink()


if __name__ == "__main__":
    remove()
    if sys.argv[1:] != ["--remove"]:
        build(None)
