"""What a Docker engine's words say of how a container ended."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.process_yard import Steps

from trainwarden_exporter.containers.docker_api import Event, parse_events, parse_inspection
from trainwarden_exporter.containers.docker_client import DockerError
from trainwarden_remediator.actions.docker import (
    DockerAction,
    DockerControlClient,
    managed_instance,
    was_stop_requested,
)
from trainwarden_remediator.config.targets import Target

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
    ("found", "happened", "reported"),
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
def test_tells_a_stop_from_an_end(
    found: Any, happened: list[Event], *, reported: bool | None
) -> None:
    assert was_stop_requested(found, happened) is reported


def test_a_stop_of_another_container_of_that_name_is_ignored() -> None:
    other = json.dumps(
        {
            "Action": "stop",
            "Actor": {"ID": "b" * 64, "Attributes": {"name": "pod"}},
            "timeNano": int(END * 1e9),
        }
    )
    happened = [*events("die"), *parse_events(other.encode())]
    assert was_stop_requested(container(), happened) is False


@pytest.mark.parametrize(
    ("status", "running", "blocker"),
    [
        ("running", True, ""),
        ("paused", True, "is paused"),
        ("restarting", True, "about to start pod again"),
        ("removing", True, "being removed"),
        ("created", False, "has never been started"),
        ("dead", False, "no longer knows"),
    ],
)
def test_each_state_says_what_may_be_done(status: str, *, running: bool, blocker: str) -> None:
    found = managed_instance("pod", container(status), [])
    assert found.running is running
    assert blocker in found.blocker
    assert bool(found.blocker) is bool(blocker)


def test_a_container_is_identified_by_its_id_and_its_start() -> None:
    first = managed_instance("pod", container("running"), []).identity
    assert first == f"pod {ID[:12]} started 2026-11-22T01:00:00.123456+00:00"
    assert managed_instance("pod", container(), []).identity == first
    later = container("running", StartedAt="2026-11-22T01:00:00.123457Z")
    assert managed_instance("pod", later, []).identity != first


def test_a_container_that_a_late_restart_leaves_stopped_is_started(tmp_path: Path) -> None:
    content = {"container": "pod", "socket": tmp_path / "s"}
    target = Target.model_validate({"run": "demo", "worker": "w", "docker": content})
    assert target.docker is not None
    action, states, steps = DockerAction(target, target.docker), ["running"], Steps()

    class Engine:
        def restart(self, identifier: str, *, grace: float) -> None:
            states.extend(["running", "exited"])
            raise DockerError("failing", f"{identifier}: after {grace:g} s") from TimeoutError()

        def start(self, identifier: str, *_: object) -> None:
            states[:] = ["running"]

        def inspect(self, name: str) -> Any:
            del name
            state = states.pop(0) if len(states) > 1 else states[0]
            return container(state)

        def events(self, *_: object) -> list[Event]:
            return events("kill", "die", "stop", signal="15")

    vars(action).update({"_engine": Engine(), "_sleep": lambda _: None})
    action.perform("m", steps)
    assert states == ["running"]
    assert [step for step, _ in steps] == ["restart", "start"]


class FakeDocker(DockerControlClient):
    """Answers in the engine's place."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__(Path("nowhere"))
        self.answer = status, body
        self.asked: list[tuple[str, Any]] = []

    def _request(self, path: str, query: Any = None, **more: Any) -> tuple[int, bytes]:
        self.asked.append((more["method"], path))
        return self.answer


@pytest.mark.parametrize("status", [http.client.NO_CONTENT, http.client.NOT_MODIFIED])
def test_an_action_is_a_post_request(status: int) -> None:
    engine = FakeDocker(status)
    engine.restart(ID, grace=30)
    engine.start(ID)
    assert engine.asked == [
        ("POST", f"/containers/{ID}/restart"),
        ("POST", f"/containers/{ID}/start"),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"message": "no such\\ncontainer"}', "status 404: no such container"),
        (b"plain text", "status 404: plain text"),
        (b"[]", r"status 404: \[\]"),
    ],
)
def test_what_the_engine_refuses_is_reported_in_one_line(body: bytes, message: str) -> None:
    with pytest.raises(DockerError, match=message):
        FakeDocker(http.client.NOT_FOUND, body).start(ID)
