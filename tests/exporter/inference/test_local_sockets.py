from __future__ import annotations

import pytest

from trainwarden_exporter.inference.addresses import is_local_address
from trainwarden_exporter.inference.local_sockets import WorkerSockets
from trainwarden_exporter.processes.listening_ports import Listener

OWN = WorkerSockets((Listener("0.0.0.0", 30000), Listener("10.9.8.7", 30001)), frozenset({22}))


@pytest.mark.parametrize(
    ("url", "confined"),
    [
        ("http://evil.example.com:30000", "http://127.0.0.1:30000"),
        ("https://evil.example.com:30000/v1", "https://127.0.0.1:30000/v1"),
        ("http://127.0.0.1:30001", "http://10.9.8.7:30001"),
        ("http://127.0.0.1:22", None),
        ("http://evil.example.com:30002", "http://127.0.0.1:30002"),
        ("http://192.0.2.1:30002", "http://127.0.0.1:30002"),
        ("http://127.0.0.2:30002", "http://127.0.0.2:30002"),
        ("http://[::1]:30002", "http://[::1]:30002"),
        ("http://localhost/health", "http://localhost:80/health"),
        ("https://localhost/health", "https://localhost:443/health"),
    ],
)
def test_a_server_is_asked_at_a_local_address_of_its_worker(url: str, confined: str | None) -> None:
    assert OWN.confine(url) == confined


def test_addresses_of_this_host_are_local() -> None:
    assert is_local_address("localhost")
    assert is_local_address("127.8.7.6")
    assert not is_local_address("192.0.2.1")  # reserved for documentation (RFC 5737)
    assert not is_local_address("host.example.com")
