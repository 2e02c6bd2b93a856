"""How do the supervisor and a worker speak? In questions and answers over a socket pair that both were born with.

A frame is a length and a pickle: (number, kind, payload); an answer repeats the number of its question and has no
kind. The pair has no name in the file system, so there is nothing to guard, to find or to clean up, and each side
sees the other's death as the end of the stream.
"""

from __future__ import annotations

import asyncio
import copyreg
import logging
import pickle
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gateway.core.errors import ConfigError, GatewayError, Problem

LOG = logging.getLogger("gateway.channel")

HEAD = struct.Struct("!I")
ANSWER = ""
"""The kind of an answer."""

Frame = tuple[int, str, Any]
Answerer = Callable[[str, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker cannot serve a configuration."""

    problems: tuple[Problem, ...]
    text: str
    """Said where there are no problems of single lines."""

    @classmethod
    def of(cls, error: GatewayError) -> Refusal:
        """From what was raised."""
        return cls(error.problems if isinstance(error, ConfigError) else (), str(error))

    def error(self) -> GatewayError:
        """To raise again on the other side."""
        return ConfigError(self.problems) if self.problems else GatewayError(self.text)


class ChannelClosed(Exception):
    """The other side is gone."""


def _proxy(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))  # snapshots hold them


def pack(number: int, kind: str, payload: Any = None) -> bytes:
    """One frame as bytes."""
    body = pickle.dumps((number, kind, payload), pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(body)) + body


def receive(sock: socket.socket) -> Frame:
    """One frame from a blocking socket, before there is an event loop; raises ``ChannelClosed``."""
    (length,) = HEAD.unpack(_exactly(sock, HEAD.size))
    frame: Frame = pickle.loads(_exactly(sock, length))
    return frame


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ChannelClosed
    return data


class RpcChannel:
    """One side; ``answer`` is called with each question of the other side, in a task of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answerer) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.closed = False
        """The other side is gone."""

    @classmethod
    async def over(cls, sock: socket.socket, answer: Answerer) -> RpcChannel:
        """On a connected socket."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, answer)

    async def ask(self, kind: str, payload: Any = None) -> Any:
        """The other side's answer; raises ``ChannelClosed`` when it will not come any more."""
        if self.closed:
            raise ChannelClosed
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(pack(number, kind, payload))
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    def tell(self, kind: str, payload: Any = None) -> None:
        """Something that wants no answer."""
        self._writer.write(pack(0, kind, payload))

    async def run(self) -> None:
        """Read until the other side is gone."""
        try:
            while True:
                (length,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                self._take(pickle.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._end()

    def _take(self, frame: Frame) -> None:
        number, kind, payload = frame
        if kind == ANSWER:
            waiting = self._waiting.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(payload)
            return
        task = asyncio.get_running_loop().create_task(self._reply(number, kind, payload))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, number: int, kind: str, payload: Any) -> None:
        try:
            answer = await self._answer(kind, payload)
        except ChannelClosed:
            return
        except Exception:  # a mistake of ours: whoever asked must not wait for ever
            LOG.exception("the question %r could not be answered", kind)
            self._writer.close()
            return
        if number and not self.closed:
            self._writer.write(pack(number, ANSWER, answer))

    def _end(self) -> None:
        self.closed = True
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ChannelClosed())
