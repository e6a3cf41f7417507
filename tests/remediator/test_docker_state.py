"""What a Docker engine's words say of how a container ended."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.containers.docker import EngineError
from trainwarden_exporter.containers.dockerformat import Event, parse_events, parse_inspection
from trainwarden_remediator.actions.dockercalls import ActingEngine
from trainwarden_remediator.actions.dockerstate import kept, told_to_stop

ID = "c0ffee" * 10 + "beef"


def container(status: str = "exited", *, policy: str = "no", **state: Any) -> Any:
    return parse_inspection(
        json.dumps(
            {
                "Id": ID,
                "Created": "2026-11-22T00:00:00Z",
                "RestartCount": 0,
                "Config": {"Tty": False},
                "HostConfig": {"RestartPolicy": {"Name": policy}},
                "State": {
                    "Status": status,
                    "StartedAt": "2026-11-22T01:00:00.123456789Z",
                    "FinishedAt": "2026-11-22T02:00:00Z",
                    "ExitCode": 3,
                    "OOMKilled": False,
                    "Pid": 0,
                    **state,
                },
            }
        ).encode()
    )


END = container().finished


def events(*actions: str, at: float = END, **attributes: str) -> list[Event]:
    lines = [
        json.dumps(
            {
                "Action": action,
                "Actor": {"ID": ID, "Attributes": {"name": "pod", **attributes}},
                "timeNano": int(at * 1e9),
            }
        )
        for action in actions
    ]
    return list(parse_events("\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("found", "happened", "told"),
    [
        (container(), events("die"), False),
        (container(), events("kill", "die", "stop", signal="15"), True),
        (container(), events("kill", "die", signal="9"), True),
        (container(), [*events("kill", at=END - 900, signal="10"), *events("die")], False),
        (container(), [*events("kill", signal="SIGRTMIN+3"), *events("die")], True),
        (container(), [], None),
        (container(), events("die", at=END - 600), None),
        (container(OOMKilled=True), [], False),
        (container(Error="port is already allocated"), [], False),
        (container(policy="always"), [], True),
        (container(policy="unless-stopped"), events("die"), True),
        (container(policy="on-failure"), [], None),
        (container(policy="on-failure"), events("die"), False),
    ],
)
def test_tells_a_stop_from_an_end(found: Any, happened: list[Event], *, told: bool | None) -> None:
    assert told_to_stop(found, happened) is told


def test_what_another_container_of_that_name_was_told_is_not_meant() -> None:
    other = json.dumps(
        {
            "Action": "stop",
            "Actor": {"ID": "b" * 64, "Attributes": {"name": "pod"}},
            "timeNano": int(END * 1e9),
        }
    )
    happened = [*events("die"), *parse_events(other.encode())]
    assert told_to_stop(container(), happened) is False


@pytest.mark.parametrize(
    ("status", "running", "hands_off"),
    [
        ("running", True, ""),
        ("paused", True, "is paused"),
        ("restarting", True, "about to start pod again"),
        ("removing", True, "being removed"),
        ("created", False, "has never been started"),
        ("dead", False, "does not tell any more"),
    ],
)
def test_each_state_says_what_may_be_done(status: str, *, running: bool, hands_off: str) -> None:
    found = kept("pod", container(status), [])
    assert found.running is running
    assert hands_off in found.hands_off
    assert bool(found.hands_off) is bool(hands_off)


def test_a_container_is_told_by_its_id_and_its_start() -> None:
    first = kept("pod", container("running"), []).identity
    assert first == f"pod {ID[:12]} started 2026-11-22T01:00:00.123456+00:00"
    assert kept("pod", container(), []).identity == first
    later = container("running", StartedAt="2026-11-22T01:00:00.123457Z")
    assert kept("pod", later, []).identity != first


class Telling(ActingEngine):
    """Answers in the engine's place."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__(Path("nowhere"))
        self.answer = status, body
        self.asked: list[tuple[str, Any]] = []

    def _ask(self, place: str, query: Any = None, **more: Any) -> tuple[int, bytes]:
        self.asked.append((more["method"], place))
        return self.answer


@pytest.mark.parametrize("status", [http.client.NO_CONTENT, http.client.NOT_MODIFIED])
def test_it_is_told_to_act_by_post(status: int) -> None:
    engine = Telling(status)
    engine.restart(ID, grace=30)
    engine.start(ID)
    assert engine.asked == [
        ("POST", f"/containers/{ID}/restart"),
        ("POST", f"/containers/{ID}/start"),
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "no such\\ncontainer"}', "status 404: no such container"),
        (b"plain text", "status 404: plain text"),
        (b"[]", r"status 404: \[\]"),
    ],
)
def test_what_the_engine_refuses_is_said_in_one_line(body: bytes, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        Telling(http.client.NOT_FOUND, body).start(ID)
