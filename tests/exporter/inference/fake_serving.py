"""Puts a fake engine on a real socket; as a program, with its state switched over HTTP.

python fake_serving.py --engine vllm --port 8000 [--starting 5]
curl -X POST localhost:8000/fake/stuck=true/clients=3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from contextlib import suppress
from http import HTTPStatus

from fake_engines import FAKES, FakeEngine, Reply, Request

_LONGEST_BODY = 1 << 20


class FakeServer:
    """Serves an engine on loopback. Starts bound, and does not listen before `listen`."""

    def __init__(self, engine: FakeEngine, port: int = 0) -> None:
        self.engine = engine
        self.socket = _bound(port)
        self.port: int = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._closed = False

    async def listen(self) -> None:
        """Starts accepting connections."""
        self._server = await asyncio.start_server(self._handle, sock=self.socket)

    async def close(self) -> None:
        """Stops listening and drops all connections, as when the process is killed."""
        self._closed = True
        if self._server is not None:
            await stop_listening(self._server)
        self.socket.close()
        for task in tuple(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        try:
            # CPython 3.11 logs an error for each handler that ends as cancelled.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not self._closed:  # it may have been accepted just before the close the close
                    request = await _read(reader)
                    reply = await self._respond(request, reader)
                    if reply is None:
                        break
                    writer.write(_head(reply) + reply.body.encode())
                    await writer.drain()
        finally:
            writer.transport.abort()

    async def _respond(self, request: Request, reader: asyncio.StreamReader) -> Reply | None:
        """Returns the reply; None if the client has disconnected."""
        if request.path.startswith("/fake/"):
            return self._switch(request.path)
        answer = asyncio.ensure_future(self.engine.respond(request))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            for one in (answer, gone):
                one.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    def _switch(self, path: str) -> Reply:
        for part in path.split("/")[2:]:
            name, _, value = part.partition("=")
            if not hasattr(self.engine, name):
                return Reply(HTTPStatus.BAD_REQUEST, f"no {name}\n", "text/plain")
            setattr(self.engine, name, json.loads(value))
        return Reply(200, "switched\n", "text/plain")


async def stop_listening(server: asyncio.Server) -> None:
    """Close `server`, once what it has accepted already is a connection.

    Python 3.11 drops, unclosed, a connection accepted in the turn in which the server is closed.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(4):
        await asyncio.sleep(0)
    server.close()


async def end_all_others() -> None:
    """Ends all other tasks of this loop, such as a connection being accepted."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.sleep(0)  # a task cancelled before its first step closes nothing
        for other in others:
            other.cancel()
        await asyncio.wait(others)
    await asyncio.sleep(0)  # closed transports are notified in the next iteration


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = min(int(headers.get("content-length", "0")), _LONGEST_BODY)
    return Request(method, path, headers, await reader.readexactly(length))


def _head(reply: Reply) -> bytes:
    phrase = HTTPStatus(reply.status).phrase
    return (
        f"HTTP/1.1 {int(reply.status)} {phrase}\r\nContent-Type: {reply.kind}\r\n"
        f"Content-Length: {len(reply.body.encode())}\r\n\r\n"
    ).encode()


async def _serve(options: argparse.Namespace) -> None:
    engine = FAKES[options.engine]()
    engine.clients = options.clients
    server = FakeServer(engine, options.port)
    await asyncio.sleep(options.starting)
    await server.listen()
    print(f"{options.engine} on port {server.port}", flush=True)  # noqa: T201 - says that it is ready
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.close()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(FAKES), required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--clients", type=int, default=0, help="requests in flight all the time")
    parser.add_argument("--starting", type=float, default=0.0, help="seconds before it listens")
    parser.add_argument("--of", help="ignored; for selectors of command lines")
    parser.add_argument("--longest-seconds", type=float, default=900, help="lifetime")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(_serve(options), options.longest_seconds))


if __name__ == "__main__":
    main()
