"""A service that takes a fixed time to answer, in a process of its own, and its clients.

Requests and answers are lines. Many requests may be under way in one connection; an answer repeats its request.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ("BlockingClient", "Client", "service")

_HOST = "127.0.0.1"


@contextmanager
def service(milliseconds: int) -> Iterator[int]:
    """Run the service during the block. Returns its port."""
    command = [sys.executable, __file__, str(milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class Client(asyncio.Protocol):
    """Sends requests without waiting for the answers to earlier ones."""

    def __init__(self) -> None:
        self._answers: dict[bytes, asyncio.Future[None]] = {}
        self._rest = b""
        self._transport: asyncio.WriteTransport

    @classmethod
    async def open(cls, port: int) -> Client:
        """Connect to the service."""
        _, client = await asyncio.get_running_loop().create_connection(cls, _HOST, port)
        return client

    async def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    async def ask(self, number: int) -> int:
        """Return the answer to ``number``, which no other request has at the same time."""
        request = b"%d" % number
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        self._transport.write(request + b"\n")
        await answer
        return number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *answers, self._rest = (self._rest + data).split(b"\n")
        for answer in answers:
            self._answers.pop(answer).set_result(None)


class BlockingClient:
    """Waits for each answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((_HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, number: int) -> int:
        """Return the answer to ``number``."""
        self._socket.sendall(b"%d\n" % number)
        return int(self._socket.recv(64))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class _Server(asyncio.Protocol):
    seconds = 0.0

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\n")
        later, write = asyncio.get_running_loop().call_later, self._transport.write
        for request in requests:
            later(self.seconds, write, request + b"\n")


async def _serve(milliseconds: int) -> None:
    _Server.seconds = milliseconds / 1000
    server = await asyncio.get_running_loop().create_server(_Server, _HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
