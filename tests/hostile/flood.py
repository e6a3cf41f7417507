"""Peers that send requests and never read: `python -m tests.hostile.flood COUNT PORT…`.

Each connects to a port of the loopback interface, in turn, sends many requests and never reads. It
connects again when it loses the connection, and after 3 s in any case, because it does not notice
the end of a connection whose data it has not read; until the process is killed. It runs at the
lowest priority: the attackers of a real flood use the processors of other hosts, and here the
programs share the processors with them.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import cycle

REQUESTS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
LIFETIME_SECONDS = 3.0
LOST = select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP


def attack(count: int, ports: Iterator[int]) -> None:
    """Keeps `count` connections; never returns."""
    poll = select.epoll()
    peers: dict[int, socket.socket] = {}
    born: deque[tuple[float, socket.socket]] = deque()

    def connect(age: float = 0.0) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", next(ports)))
        peers[sock.fileno()] = sock
        born.append((time.monotonic() - age, sock))
        poll.register(sock, select.EPOLLOUT | LOST)

    def replace(number: int) -> None:
        poll.unregister(number)
        peers.pop(number).close()
        connect()

    for number in range(count):
        connect(LIFETIME_SECONDS * (1 - number / count))
    while True:
        for number, events in poll.poll(0.05):
            if events & LOST:
                replace(number)
            else:
                with contextlib.suppress(OSError):
                    peers[number].send(REQUESTS)
                poll.modify(number, LOST)
        while time.monotonic() - born[0][0] > LIFETIME_SECONDS:
            _, sock = born.popleft()
            if sock.fileno() >= 0:
                replace(sock.fileno())


if __name__ == "__main__":
    os.nice(19)
    attack(int(sys.argv[1]), cycle(map(int, sys.argv[2:])))
