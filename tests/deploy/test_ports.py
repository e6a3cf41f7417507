from __future__ import annotations

import socket

import pytest

import ports


def listening() -> socket.socket:
    return socket.create_server((ports.LOOPBACK, 0))


def test_any_free_ports_all_differ() -> None:
    chosen = ports.choose(any_free=True)
    assert set(chosen) == set(ports.USUAL)
    assert len(set(chosen.values())) == len(chosen)


def test_a_usual_port_that_is_in_use_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as server:
        used = server.getsockname()[1]
        monkeypatch.setattr(ports, "USUAL", {"exporter": used})
        assert ports.choose()["exporter"] not in (0, used)


def test_a_usual_port_that_is_free_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as server:
        free = server.getsockname()[1]
    monkeypatch.setattr(ports, "USUAL", {"exporter": free})
    assert ports.choose() == {"exporter": free}


@pytest.mark.parametrize("any_free", [True, False])
def test_a_port_is_kept_if_it_is_free_and_the_usual_one_is_not(
    *, any_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as usual, listening() as server:
        used = server.getsockname()[1]
        in_use = dict.fromkeys(("exporter", "remediator"), usual.getsockname()[1])
        monkeypatch.setattr(ports, "USUAL", in_use)
        before = {"exporter": ports.free_port(), "remediator": used}
        chosen = ports.choose(before=before, any_free=any_free)
        assert chosen["exporter"] == before["exporter"]
        assert chosen["remediator"] != used


def test_the_usual_ports_are_taken_again_once_they_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = {"exporter": ports.free_port(), "remediator": ports.free_port()}
    monkeypatch.setattr(ports, "USUAL", usual)
    before = {"exporter": ports.free_port(), "remediator": ports.free_port()}
    assert ports.choose(before=before) == usual
    assert ports.choose(before=before, any_free=True) == before


def test_a_port_that_is_fixed_is_kept_for_no_other() -> None:
    free = ports.free_port()
    chosen = ports.choose({"exporter": free}, {"remediator": free})
    assert chosen["exporter"] == free
    assert chosen["remediator"] != free


def test_a_usual_port_of_another_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    free = ports.free_port()
    with listening() as server:
        used = server.getsockname()[1]
        monkeypatch.setattr(ports, "USUAL", {"exporter": used, "remediator": free})
        chosen = {"exporter": 23456, "remediator": 23457}  # that of an earlier start
        assert ports.moved(chosen) == [f"{used} (exporter) is in use: 23456 instead"]
        assert ports.moved({"exporter": used}) == []


def test_the_pages_are_forwarded_from_the_ports_that_they_have() -> None:
    chosen = {"exporter": 1, "remediator": 2, "prometheus": 3}
    assert ports.forwarding(chosen) == "ssh -L 1:127.0.0.1:1 -L 2:127.0.0.1:2 HOST"


def test_a_fixed_port_that_is_in_use_is_an_error() -> None:
    with listening() as server, pytest.raises(ports.InUseError, match="exporter is in use"):
        ports.choose({"exporter": server.getsockname()[1]}, any_free=True)
