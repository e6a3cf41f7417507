from __future__ import annotations

import os
import socket
import sys
import threading

import pytest
from tests.remediator.process_yard import Yard

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_remediator.actions import ports
from trainwarden_remediator.actions.ports import Ports, ports_in_use, wait_until_free


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
        held = ports_in_use([own()])
        assert port in held.numbers
        # the same number of an earlier process is another
        assert ports_in_use([own()._replace(start_ticks=1)]).numbers == frozenset()
        assert port in wait_until_free(held, within=0.2)
    assert port not in ports_in_use([own()]).numbers
    assert port not in wait_until_free(held, within=0.2)


def test_who_shares_a_port_from_before_is_not_in_the_way(yard: Yard) -> None:
    shared = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[2])), "
    shared += "reuse_port=True); print(s.getsockname()[1], flush=True); import time; time.sleep(60)"
    command = (sys.executable, "-c", shared, yard.mark)
    first, line = yard.run_command(*command, "0")
    second, _ = yard.run_command(*command, line.strip())
    found = read_process(first.pid)
    assert found is not None
    held = ports_in_use([found.identity])
    assert held.numbers == {int(line)}
    assert wait_until_free(held, within=0.1) == {int(line)}
    first.kill()
    first.wait()
    assert wait_until_free(held, within=60) == frozenset()
    assert second.poll() is None
    # but a process that comes only now is
    yard.run_command(*command, line.strip())
    assert wait_until_free(held, within=0.1) == {int(line)}


def test_waits_until_a_port_is_free() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    held = Ports(frozenset({server.getsockname()[1]}))
    threading.Timer(0.3, server.close).start()
    assert wait_until_free(held, within=60) == frozenset()
    assert server.fileno() == -1


def test_what_cannot_be_seen_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind() -> dict[int, int]:
        raise CollectError("too many open files")

    monkeypatch.setattr(ports, "read_listening", blind)
    assert ports_in_use([own()]) == Ports()
    assert wait_until_free(Ports(frozenset({80})), within=20) == frozenset()


def test_a_process_that_is_gone_listens_on_nothing() -> None:
    assert ports_in_use([Identity(1 << 22, 5)]).numbers == frozenset()
