"""Requests and responses between supervisor and workers, over a socket pair.

A frame is a length and a pickle of (number, method, payload). A response has the number of the request and an empty
method. The socket pair has no name in the file system, so there is no file to protect or to remove. When one process
ends, the other process reads the end of the stream.
"""

from __future__ import annotations

import asyncio
import copyreg
import logging
import pickle
import socket
import struct
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any

LOG = logging.getLogger("gateway.channel")

LENGTH = struct.Struct("!I")
NO_METHOD = ""
"""The value of ``method`` in a frame that is a response."""

RpcHandler = Callable[[str, Any], Awaitable[Any]]


class ChannelClosed(Exception):
    """The process on the other side has ended."""


def _proxy(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))  # for snapshots


class RpcChannel:
    """One end of the socket pair. ``handler`` is called with each request of the other process, in a new task."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: RpcHandler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._number = 0
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        """Whether the other process has ended."""

    @classmethod
    async def over(cls, sock: socket.socket, handler: RpcHandler) -> RpcChannel:
        """Return a channel over a connected socket."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, handler)

    async def call(self, method: str, payload: Any = None) -> Any:
        """Send a request and return the response. Raises ``ChannelClosed`` if the other process ends first."""
        if self.closed:
            raise ChannelClosed
        self._number += 1
        number = self._number
        response = self._responses[number] = asyncio.get_running_loop().create_future()
        self._write(number, method, payload)
        try:
            return await response
        finally:
            del self._responses[number]

    def notify(self, method: str, payload: Any = None) -> None:
        """Send a request that gets no response."""
        self._write(0, method, payload)

    def _write(self, number: int, method: str, payload: Any) -> None:
        body = pickle.dumps((number, method, payload), pickle.HIGHEST_PROTOCOL)
        self._writer.write(LENGTH.pack(len(body)) + body)

    async def run(self) -> None:
        """Read frames until the other process ends."""
        try:
            while True:
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                number, method, payload = pickle.loads(await self._reader.readexactly(length))
                if method == NO_METHOD:
                    response = self._responses.get(number)
                    if response is not None and not response.done():
                        response.set_result(payload)
                else:
                    task = asyncio.create_task(self._handle(number, method, payload))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed = True
            self._writer.close()
            for response in self._responses.values():
                if not response.done():
                    response.set_exception(ChannelClosed())

    async def _handle(self, number: int, method: str, payload: Any) -> None:
        try:
            response = await self._handler(method, payload)
        except ChannelClosed:
            return
        except Exception:  # a bug: close, so that the other side does not wait for ever
            LOG.exception("the request %r between supervisor and worker failed", method)
            self._writer.close()
            return
        if number and not self.closed:
            self._write(number, NO_METHOD, response)
