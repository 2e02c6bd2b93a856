"""The program of a ``SubprocessRenderer``; run as a script, not imported.

The arguments are the number of an open socket and the gateway's ``sys.path``. Each message on the socket is one JSON
object; a reply to a rendering is followed by a second message, the text in UTF-8. Before the first job the process
gives up what it does not need: files, children and memory beyond ``MAX_MEMORY``.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from multiprocessing.connection import Connection
from typing import Any

MAX_MEMORY = 512 * 1024 * 1024
"""Bytes of address space."""
MAX_CPU = 2
"""Seconds of processor time for one job. It ends a process whose parent died during a job."""


def main() -> None:
    """Serve until the socket is closed."""
    sys.path[:] = sys.argv[2:]
    from gateway.core.errors import InvalidValue, TemplateError
    from gateway.template.huggingface.sandbox.compiled_template import CompiledTemplate
    from gateway.template.huggingface.sandbox.environment import ChatEnvironment

    connection = Connection(int(sys.argv[1]))
    setup = json.loads(connection.recv_bytes())
    now = datetime.fromisoformat(setup["clock"] or "1970-01-01")
    environment = ChatEnvironment(lambda: now)
    _import_everything(environment)
    _give_up_rights()
    try:
        templates = [CompiledTemplate(source, environment) for source in setup["sources"]]
    except TemplateError as error:
        _send(connection, {"failed": error.message})
        return
    _send(connection, {"ready": True})
    while True:
        try:
            job = json.loads(connection.recv_bytes())
        except EOFError:
            return
        _limit_cpu_time()
        if not setup["clock"]:
            now = datetime.fromisoformat(job["now"])  # of the gateway: this process does not know its time zone
        try:
            rendered = templates[job["template"]].render(job["variables"])
        except InvalidValue as error:
            _send(connection, {"refused": error.message})
        except TemplateError as error:
            _send(connection, {"failed": error.message})
        else:
            _send(connection, {"undefined": rendered.undefined})
            connection.send_bytes(rendered.text.encode("utf-8", "surrogatepass"))


def _import_everything(environment: Any) -> None:
    """Import what jinja2 and Python import on first use: no file can be opened later."""
    import jinja2.constants
    import jinja2.debug  # noqa: F401

    environment.from_string(r"{{ '\n\u00e4' | tojson }}{{ strftime_now('%d %B %Y') }}").render()


def _give_up_rights() -> None:
    for limit, value in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def _limit_cpu_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + MAX_CPU, hard))


def _send(connection: Connection[Any, Any], reply: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(reply).encode("ascii"))


if __name__ == "__main__":
    main()
