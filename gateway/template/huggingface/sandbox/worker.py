"""The program that a ``SubprocessRenderer`` starts as a subprocess. The program runs as a script and is not imported.

The arguments are the number of an open socket and the gateway's ``sys.path``. Each message on the socket is a JSON
object, either with the templates or with a conversation to render. The reply to a conversation is a JSON object, and
then a second message with the text in UTF-8. Each job brings its limit of processor time, which also ends a process
whose parent has died, and the process has a limit of memory, because strangers write the templates that ``gateway
import`` reads. The sandbox of ``environment.py`` keeps templates away from files and from the network, as in the
gateway's process.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from datetime import datetime
from multiprocessing.connection import Connection

MAX_MEMORY = 512 * 1024 * 1024
"""The limit of the address space, in bytes."""


def main() -> None:
    """Do jobs until the socket is closed."""
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
        # At the limit, the system ends this process with SIGPROF, in the middle of C code too.
        signal.setitimer(signal.ITIMER_PROF, job["cpu_seconds"])
        began = time.thread_time()
        reply, text = {}, ""
        try:
            if "sources" in job:
                clock = job["clock"]
                now = datetime.fromisoformat(clock) if clock else now
                templates = [CompiledTemplate(source, environment) for source in job["sources"]]
            else:
                if not clock:
                    now = datetime.fromisoformat(job["now"])  # in the gateway's time zone
                rendered = templates[job["template"]].render(job["variables"])
                reply["undefined"], text = rendered.undefined, rendered.text
        except InvalidValue as error:
            reply["refused"] = error.message
        except TemplateError as error:
            reply["failed"] = error.message
        reply["seconds"] = time.thread_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send_bytes(json.dumps(reply).encode("ascii"))
        if "undefined" in reply:
            connection.send_bytes(text.encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    main()
