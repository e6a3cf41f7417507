from __future__ import annotations

import os
import socket
import sys
import threading
import time

import pytest
from tests.remediator.conftest import Yard

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_remediator.actions import ports
from trainwarden_remediator.actions.ports import Ports, await_free, parse_listening, ports_of

# as Linux 6.1 writes it; the second line is a connection, not a listener
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:7530 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0
   2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st and so on
   0: 00000000000000000000000000000000:2AE1 00000000000000000000000000000000:0000 0A \
00000000:00000000 00:00000000 00000000     0        0 99 1 0000000000000000 100 0 0 10 0
"""


def test_reads_who_listens() -> None:
    assert parse_listening(TCP) == {4711: 30000, 4713: 8080}
    assert parse_listening(TCP6) == {99: 10977}


@pytest.mark.parametrize("text", ["", "\n", "sl\n 0: x\n", "sl\n" + "a " * 20])
def test_other_text_tells_of_nobody(text: str) -> None:
    assert parse_listening(text) == {}


def own() -> Identity:
    process = read_process(os.getpid())
    assert process is not None
    return process.identity


def listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_finds_the_ports_of_a_process(host: str) -> None:
    with listen(host) as server:
        port = server.getsockname()[1]
        held = ports_of([own()])
        assert port in held.numbers
        # the same number of an earlier process is another
        assert ports_of([own()._replace(start_ticks=1)]).numbers == frozenset()
        assert port in await_free(held, within=0.2)
    assert port not in ports_of([own()]).numbers
    assert port not in await_free(held, within=0.2)


def test_who_shares_a_port_from_before_is_not_in_the_way(yard: Yard) -> None:
    shared = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[2])), "
    shared += "reuse_port=True); print(s.getsockname()[1], flush=True); import time; time.sleep(60)"
    command = (sys.executable, "-c", shared, yard.mark)
    first, line = yard.run_command(*command, "0")
    second, _ = yard.run_command(*command, line.strip())
    found = read_process(first.pid)
    assert found is not None
    held = ports_of([found.identity])
    assert held.numbers == {int(line)}
    assert await_free(held, within=0.1) == {int(line)}
    first.kill()
    first.wait()
    assert await_free(held, within=10) == frozenset()
    assert second.poll() is None
    # but one that comes only now is
    yard.run_command(*command, line.strip())
    assert await_free(held, within=0.1) == {int(line)}


def test_waits_until_a_port_is_free() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    held = Ports(frozenset({server.getsockname()[1]}))
    threading.Timer(0.3, server.close).start()
    began = time.monotonic()
    assert await_free(held, within=20) == frozenset()
    assert 0.2 < time.monotonic() - began < 10


def test_what_cannot_be_seen_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind() -> dict[int, int]:
        raise CollectError("too many open files")

    monkeypatch.setattr(ports, "read_listening", blind)
    assert ports_of([own()]) == Ports()
    assert await_free(Ports(frozenset({80})), within=20) == frozenset()


def test_a_process_that_is_gone_listens_on_nothing() -> None:
    assert ports_of([Identity(1 << 22, 5)]).numbers == frozenset()
