"""The program that a ``LimitedProcess`` starts as a subprocess. The program runs as a script and is not imported.

The arguments are the number of an open socket, the name of the job module and the gateway's ``sys.path``. Each job on
the socket is a JSON object. The reply is a JSON object, and then a second message with a text in UTF-8. Each job brings
its limit of processor time, which also ends a process whose parent has died, and the process has a limit of memory.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from importlib import import_module
from multiprocessing.connection import Connection

MAX_MEMORY = 512 * 1024 * 1024
"""The limit of the address space, in bytes."""


def main() -> None:
    """Do jobs until the socket is closed."""
    sys.path[:] = sys.argv[3:]
    do_job = import_module(sys.argv[2]).do_job
    connection = Connection(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    while True:
        try:
            job = json.loads(connection.recv_bytes())
        except EOFError:
            return
        # At the limit, the system ends this process with SIGPROF, in the middle of C code too.
        signal.setitimer(signal.ITIMER_PROF, job["cpu_seconds"])
        began = time.thread_time()
        values, text = do_job(job)
        values["seconds"] = time.thread_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send_bytes(json.dumps(values).encode("ascii"))
        connection.send_bytes(text.encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    try:
        main()
    finally:  # at once: a process that ends slowly would close the socket first, and then be killed by its parent
        os._exit(1)
