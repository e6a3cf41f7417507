"""Peers that reach nothing but the port, against the running programs."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.hostile.bombs import gzip_bomb
from tests.hostile.programs import (
    EXPORTER,
    PATIENCE,
    REMEDIATOR,
    Program,
    has_ended,
    read_answer,
    steady,
)
from tests.waiting import until

from trainwarden_exporter.webserver.connections import MAX_CONNECTIONS

ATTACKERS = 600
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
GIB = 1 << 30
MIB = 1 << 20

Start = Callable[..., Program]


@pytest.fixture(scope="module", params=[EXPORTER, REMEDIATOR])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(name, tmp_path_factory.mktemp(name))
    yield program
    program.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as started:

        def one(name: str, *options: str, descriptors: int = 1024) -> Program:
            program = Program(name, tmp_path, *options, descriptors=descriptors)
            started.callback(program.close)
            return program

        yield one


def send_all_of(data: bytes, sock: socket.socket) -> None:
    """Sends until the peer takes no more."""
    sock.setblocking(False)
    try:
        sent = 0
        while sent < len(data):
            sent += sock.send(data[sent:])
    except OSError:
        pass


def test_peers_that_never_read_hold_no_more_than_the_limit_of_connections(
    program: Program,
) -> None:
    before = program.descriptors
    with ExitStack() as attackers:
        for _ in range(ATTACKERS):
            sock = attackers.enter_context(program.connect(receive_buffer=4096))
            send_all_of(REQUEST * 2000, sock)
        assert program.ask("GET", "/-/healthy").status == 200
        assert program.ask("GET", "/metrics").status == 200
        assert program.descriptors <= before + MAX_CONNECTIONS + 50
    until(lambda: program.descriptors <= before + 20)
    assert len([line for line in program.log if "connections" in line]) <= 2
    assert not any("Traceback" in line for line in program.log)


def test_a_peer_that_sends_more_requests_before_it_reads_loses_the_connection(
    program: Program,
) -> None:
    before = steady(lambda: program.descriptors)
    with program.connect(receive_buffer=4096) as sock:
        send_all_of(REQUEST * 2000, sock)
        until(lambda: program.descriptors <= before)
        sock.settimeout(PATIENCE)
        assert has_ended(sock)


def test_silent_connections_beyond_the_limit_do_not_keep_others_out(program: Program) -> None:
    with ExitStack() as silent:
        for _ in range(ATTACKERS):
            silent.enter_context(program.connect())
        assert program.ask("GET", "/-/healthy").status == 200
        assert program.descriptors < 1000


def test_a_lack_of_descriptors_costs_one_line_and_is_survived(name: str, start: Start) -> None:
    program = start(name, descriptors=140)
    with ExitStack() as silent:
        for _ in range(300):
            silent.enter_context(program.connect()).sendall(b"GET")
        assert program.ask("GET", "/-/healthy").status == 200
    until(lambda: program.descriptors < 100)
    assert not any("Traceback" in line for line in program.log)
    assert len([line for line in program.log if "not accepted" in line]) == 1


def test_bytes_that_are_not_http_cost_one_line(program: Program) -> None:
    before = len(program.log)
    for _ in range(50):
        with program.connect() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX\x00: 1\r\n\r\n")
            assert read_answer(sock).status == 400
    assert len([line for line in program.log[before:] if "Error handling" in line]) <= 1


def test_a_request_head_without_end_is_refused(program: Program) -> None:
    with program.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        line = b"X: " + b"x" * 4000 + b"\r\n"
        ended = False
        for _ in range(100):
            try:
                sock.sendall(line)
            except ConnectionError:
                ended = True
                break
            if select.select([sock], [], [], 0.01)[0]:
                ended = has_ended(sock)
                break
        assert ended


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("POST", "/metrics"),
        ("POST", "/nowhere"),
        ("POST", "/-/healthy"),
        ("POST", "/-/reload"),
        ("POST", "/webhook"),
        ("POST", "/heartbeat/trainer"),
    ],
)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP"])
def test_a_compressed_body_is_refused_unread(
    program: Program, method: str, path: str, encoding: str
) -> None:
    credential = {"Authorization": f"Bearer {program.token}"}
    answer = program.ask(method, path, b"x" * 1000, Content_Encoding=encoding, **credential)
    assert (answer.status, answer.closed) == (415, True)


def test_a_body_that_expands_to_gigabytes_takes_neither_time_nor_memory(
    program: Program,
) -> None:
    bomb = gzip_bomb(4 * GIB)
    credential = {"Authorization": f"Bearer {program.token}"}
    memory, cpu = program.memory("VmHWM"), program.cpu_seconds()
    for path in ("/metrics", "/nowhere", "/-/reload", "/webhook"):
        answer = program.ask("POST", path, bomb, Content_Encoding="gzip", **credential)
        assert answer.status == 415
    assert program.cpu_seconds() - cpu < 3
    assert program.memory("VmHWM") - memory < 48 * MIB


@pytest.mark.parametrize("path", ["/metrics", "/nowhere", "/webhook"])
def test_the_connection_ends_after_an_answer_that_left_a_body_unread(
    program: Program, path: str
) -> None:
    with program.connect() as sock:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {GIB}\r\n\r\n"
        sock.sendall(head.encode() + b"x" * 1000)
        answer = read_answer(sock)
        assert answer.status in {401, 404, 405}
        assert answer.closed
        began = time.monotonic()
        assert has_ended(sock)
        assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("path", ["/", "/metrics"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:10977", 200),
        ("localhost:3000", 200),
        ("LocalHost.", 200),
        ("[::1]:10977", 200),
        ("attacker.example", 403),
        ("attacker.example:10977", 403),
        ("127.0.0.1.attacker.example", 403),
        ("10.0.0.1", 403),
        ("", 403),
    ],
)
def test_a_page_is_not_readable_under_a_foreign_name(
    program: Program, path: str, host: str, status: int
) -> None:
    assert program.ask("GET", path, host=host).status == status


def test_a_configured_external_name_is_accepted(name: str, start: Start) -> None:
    program = start(name, "--web.external-url=https://watch.example.org/")
    assert program.ask("GET", "/", host="Watch.Example.Org").status == 200
    assert program.ask("GET", "/", host="other.example.org").status == 403


def test_a_health_check_may_use_any_name(program: Program) -> None:
    assert program.ask("GET", "/-/healthy", host="10.0.0.1:10977").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/-/reload", "/-/hold", "/-/resume", "/webhook", "/hold"])
def test_a_web_page_changes_nothing(program: Program, path: str, headers: dict[str, str]) -> None:
    credential = {"Authorization": f"Bearer {program.token}"}
    assert program.ask("POST", path, b"", **credential, **headers).status == 403


def test_only_the_page_for_holds_may_send_its_form(start: Start) -> None:
    program = start(REMEDIATOR)
    headers = {
        "Authorization": f"Bearer {program.token}",
        "Origin": "null",
        "Sec_Fetch_Site": "same-origin",
    }
    assert program.ask("POST", "/hold", b"", **headers).status == 200
    for path in ("/-/hold", "/-/reload", "/webhook"):
        assert program.ask("POST", path, b"", **headers).status == 403


def test_a_reload_of_the_remediator_needs_the_token(start: Start) -> None:
    program = start(REMEDIATOR)
    before = len(program.log)
    assert program.ask("POST", "/-/reload").status == 401
    assert program.ask("POST", "/-/reload", Authorization="Bearer wrong").status == 401
    assert not any("reload" in line for line in program.log[before:])
    authorized = program.ask("POST", "/-/reload", Authorization=f"Bearer {program.token}")
    assert authorized.status == 200
