from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.listener_account import check_listener

HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)
ORDINARY = 23456
"""The uid of an account without a name."""
PORT = 10977
URL = f"http://127.0.0.1:{PORT}"
LOOPBACK, ANY, OTHER_HOST = "0100007F", "00000000", "0201A8C0"
LOOPBACK6, ANY6 = "00000000000000000000000001000000", "0" * 32
MAPPED_LOOPBACK = "0000000000000000FFFF00000100007F"
LISTEN, ESTABLISHED = "0A", "01"


def table(
    folder: Path, uid: int, *, address: str = LOOPBACK, port: int = PORT, state: str = LISTEN
) -> list[Path]:
    """A table of the kernel with one socket of `uid`."""
    path = folder / "tcp"
    remote = "0" * len(address)
    path.write_text(
        f"{HEAD}   0: {address}:{port:04X} {remote}:0000 {state} 00000000:00000000 00:00000000"
        f" 00000000 {uid:5d}        0 23456 1 0000000000000000 100 0 0 10 0\n"
    )
    return [path, folder / "tcp6"]


@pytest.mark.parametrize("address", [LOOPBACK, ANY, ANY6, MAPPED_LOOPBACK])
def test_what_an_ordinary_account_answers_does_not_count(tmp_path: Path, address: str) -> None:
    with pytest.raises(ObservationError, match=f"the account {ORDINARY} listens there"):
        check_listener(URL, tables=table(tmp_path, ORDINARY, address=address))


@pytest.mark.parametrize("uid", [1000, 60000, 65536, 2_000_000_000])
def test_accounts_of_people_are_ordinary(tmp_path: Path, uid: int) -> None:
    if uid != os.geteuid():
        with pytest.raises(ObservationError):
            check_listener(URL, tables=table(tmp_path, uid))


@pytest.mark.parametrize("uid", [0, 1, 999, 61184, 65519, 65534])
def test_those_of_the_system_are_not(tmp_path: Path, uid: int) -> None:
    check_listener(URL, tables=table(tmp_path, uid))


def test_nor_is_the_account_of_the_program_or_the_one_in_the_file(tmp_path: Path) -> None:
    check_listener(URL, tables=table(tmp_path, os.geteuid()))
    check_listener(URL, str(ORDINARY), table(tmp_path, ORDINARY))
    with pytest.raises(ObservationError):
        check_listener(URL, str(ORDINARY + 1), table(tmp_path, ORDINARY))
    with pytest.raises(ObservationError):
        check_listener(URL, "no-such-account", table(tmp_path, ORDINARY))


@pytest.mark.parametrize(
    "url",
    [
        f"http://{'a' * 64}.example:{PORT}",
        f"https://127.0.0.1:{PORT}",
        f"http://127.0.0.1:{PORT + 1}",
        f"http://192.0.2.1:{PORT}",
    ],
)
def test_a_certificate_another_port_and_another_host_are_not_checked(
    tmp_path: Path, url: str
) -> None:
    check_listener(url, tables=table(tmp_path, ORDINARY))


def test_a_connection_and_another_address_are_no_listener(tmp_path: Path) -> None:
    check_listener(URL, tables=table(tmp_path, ORDINARY, state=ESTABLISHED))
    check_listener(URL, tables=table(tmp_path, ORDINARY, address=OTHER_HOST))


def test_a_name_of_this_host_and_the_usual_port_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="http://localhost:"):
        check_listener(f"http://localhost:{PORT}/metrics", tables=table(tmp_path, ORDINARY))
    with pytest.raises(ObservationError):
        check_listener("http://localhost", tables=table(tmp_path, ORDINARY, port=80))


def test_the_kernels_own_tables_are_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_listener(f"http://127.0.0.1:{server.getsockname()[1]}")
