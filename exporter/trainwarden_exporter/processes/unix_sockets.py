"""Local sockets in /proc, and their other ends, which it does not show; see sock_diag(7)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG in linux/netlink.h
_BY_FAMILY, _DUMP = 20, 0x301  # SOCK_DIAG_BY_FAMILY; NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_SHOW_PEER, _PEER = 4, 2  # UDIAG_SHOW_PEER, UNIX_DIAG_PEER in linux/unix_diag.h
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


def read_unix_peers() -> Mapping[int, int]:
    """Returns for each connected local socket of this network namespace the inode of its peer.

    Empty where the kernel does not tell.
    """
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, 0, _SHOW_PEER, _ANY, _ANY)
    header = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0)
    found: dict[int, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(_SECONDS)
            kernel.send(header + request)
            while _parse_answer(kernel.recv(1 << 16), found):
                pass
    except OSError:
        return {}
    return found


def _parse_answer(data: bytes, found: dict[int, int]) -> bool:
    """Adds the peers in one part of the answer; returns whether more parts follow."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if kind in (_ERROR, _DONE) or length < _HEADER.size:
            return False
        inode = _SOCKET.unpack_from(data, at + _HEADER.size)[4]
        attribute = at + _HEADER.size + _SOCKET.size
        while attribute + _ATTRIBUTE.size <= at + length:
            size, name = _ATTRIBUTE.unpack_from(data, attribute)
            if name == _PEER:
                (found[inode],) = struct.unpack_from("=I", data, attribute + _ATTRIBUTE.size)
            attribute += max(size + 3 & ~3, _ATTRIBUTE.size)
        at += length + 3 & ~3
    return True
