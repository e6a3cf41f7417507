from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from trainwarden_exporter.processes.listening_ports import Listener, parse_listeners, read_listeners

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 00000000:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
   2: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0
   3: short
"""
TCP6 = """\
  sl  local_address                         remote_address                        st …
   0: 00000000000000000000000001000000:1F41 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 5
"""

little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="the numbers are of one order")


@little_endian
def test_only_sockets_that_listen_count() -> None:
    assert parse_listeners(TCP) == {
        4711: Listener("127.0.0.1", 8000),
        4712: Listener("0.0.0.0", 30000),
    }


@little_endian
def test_addresses_of_ipv6() -> None:
    assert parse_listeners(TCP6) == {5: Listener("::1", 8001)}


@pytest.mark.parametrize("text", ["", "\n\n", "header only", "sl\n 0: x\n", "sl\n" + "a " * 20])
def test_a_table_without_sockets(text: str) -> None:
    assert parse_listeners(text) == {}


def test_a_process_of_our_own_is_found_to_listen() -> None:
    with socket.socket() as one, socket.socket(socket.AF_INET6) as other:
        one.bind(("127.0.0.1", 0))
        one.listen()
        try:
            other.bind(("::1", 0))
            other.listen()
        except OSError:
            other.close()
        found = read_listeners([os.getpid()])[os.getpid()]
        assert Listener("127.0.0.1", one.getsockname()[1]) in found
    assert one.fileno() == -1


def test_an_ended_process_has_no_ports(tmp_path: Path) -> None:
    assert read_listeners([1], tmp_path) == {1: ()}
