"""The program of a ``SubprocessRenderer``; run as a script, not imported.

The arguments are the number of an open socket and the gateway's ``sys.path``. Each message on the socket is one JSON
object: the templates, or a conversation to be rendered by one of them. The reply to a rendering is followed by a second
message, the text in UTF-8. Each job has a limit of processor time, and all of them one of memory, because a template
that ``gateway import`` reads is a stranger's. Files and the network are out of reach of a template by the sandbox of
``environment.py``, as they are in the gateway's own process.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from datetime import datetime
from multiprocessing.connection import Connection

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
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    templates: list[CompiledTemplate] = []
    clock, now = "", datetime.min
    environment = ChatEnvironment(lambda: now)
    while True:
        try:
            job = json.loads(connection.recv_bytes())
        except EOFError:
            return
        _limit_cpu_time()
        began = time.thread_time()
        reply, text = {}, ""
        try:
            if "sources" in job:
                clock = job["clock"]
                now = datetime.fromisoformat(clock) if clock else now
                templates = [CompiledTemplate(source, environment) for source in job["sources"]]
            else:
                if not clock:
                    now = datetime.fromisoformat(job["now"])  # of the gateway: this process does not know its time zone
                rendered = templates[job["template"]].render(job["variables"])
                reply["undefined"], text = rendered.undefined, rendered.text
        except InvalidValue as error:
            reply["refused"] = error.message
        except TemplateError as error:
            reply["failed"] = error.message
        reply["seconds"] = time.thread_time() - began
        connection.send_bytes(json.dumps(reply).encode("ascii"))
        if "undefined" in reply:
            connection.send_bytes(text.encode("utf-8", "surrogatepass"))


def _limit_cpu_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + MAX_CPU, hard))


if __name__ == "__main__":
    main()
