"""Local sockets in /proc, and their other ends, which it does not show; see sock_diag(7)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG in linux/netlink.h
_BY_FAMILY, _DUMP = 20, 0x301  # SOCK_DIAG_BY_FAMILY; NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_SHOW_NAME, _SHOW_PEER = 1, 4  # UDIAG_SHOW_NAME, UDIAG_SHOW_PEER in linux/unix_diag.h
_NAME, _PEER = 0, 2  # UNIX_DIAG_NAME, UNIX_DIAG_PEER
_LISTENING = 10  # TCP_LISTEN in include/net/tcp_states.h, of all families
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_SOCKET = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_ANY = 0xFFFFFFFF
_SECONDS = 1.0
_FIELDS = 7


class LocalSocket(NamedTuple):
    """A row of a /proc/<pid>/net/unix. Any account chooses the bytes of its names."""

    flags: str
    inode: str
    name: str


def parse_unix_sockets(text: str) -> Iterator[LocalSocket]:
    """Yields the sockets in a /proc/<pid>/net/unix."""
    for line in text.split("\n")[1:]:  # a name may have other separators of lines
        fields = line.split(maxsplit=_FIELDS)
        if len(fields) >= _FIELDS:
            yield LocalSocket(fields[3], fields[6], "".join(fields[_FIELDS:]))


class KernelSocket(NamedTuple):
    """A local socket as the kernel describes it, which no account can forge."""

    inode: int
    listens: bool
    name: bytes
    """As it was bound; the first byte of a name in the abstract namespace is 0."""
    peer: int | None
    """The inode of the other end, if it is connected."""


def read_unix_sockets() -> Sequence[KernelSocket]:
    """Returns the local sockets of this network namespace.

    Empty where the kernel does not answer.
    """
    show = _SHOW_NAME | _SHOW_PEER
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, 0, show, _ANY, _ANY)
    header = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0)
    found: list[KernelSocket] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(_SECONDS)
            kernel.send(header + request)
            while _parse_answer(kernel.recv(1 << 16), found):
                pass
    except OSError:
        return ()
    return found


def _parse_answer(data: bytes, found: list[KernelSocket]) -> bool:
    """Adds the sockets in one part of the answer; returns whether more parts follow."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if kind in (_ERROR, _DONE) or length < _HEADER.size:
            return False
        _, _, state, _, inode, *_ = _SOCKET.unpack_from(data, at + _HEADER.size)
        attribute = at + _HEADER.size + _SOCKET.size
        attributes: dict[int, bytes] = {}
        while attribute + _ATTRIBUTE.size <= at + length:
            size, name = _ATTRIBUTE.unpack_from(data, attribute)
            attributes[name] = data[attribute + _ATTRIBUTE.size : attribute + size]
            attribute += max(size + 3 & ~3, _ATTRIBUTE.size)
        peer = attributes.get(_PEER)
        found.append(
            KernelSocket(
                inode,
                state == _LISTENING,
                attributes.get(_NAME, b""),
                struct.unpack("=I", peer)[0] if peer else None,
            )
        )
        at += length + 3 & ~3
    return True
