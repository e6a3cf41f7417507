"""An engine is asked over its socket, whatever its version, and may be away in several ways."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.containers import docker_client
from trainwarden_exporter.containers.docker_client import DockerClient, DockerError, common_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.containers.conftest import FakeEngine


def state_of(engine: DockerClient) -> str:
    """How it cannot be asked."""
    with pytest.raises(DockerError) as caught:
        engine.inspect("trainer")
    return caught.value.state


@pytest.fixture
def trainer(engine: FakeEngine, recorded: Callable[[str], bytes]) -> FakeEngine:
    engine.containers["trainer"] = recorded("inspect-running.json")
    engine.logs["trainer"] = recorded("log-frames.bin")
    engine.events = recorded("events.jsonl")
    return engine


class TestAnEngine:
    def test_tells_of_a_container(self, trainer: FakeEngine) -> None:
        seen = DockerClient(trainer.path).inspect("trainer")
        assert seen is not None
        assert (seen.state, seen.restart_count) == ("running", 5)

    def test_has_no_container_of_a_name(self, trainer: FakeEngine) -> None:
        assert DockerClient(trainer.path).inspect("nobody") is None

    def test_tells_what_happened_to_it(self, trainer: FakeEngine) -> None:
        asked = DockerClient(trainer.path)
        events = asked.events("trainer", 1795240854.0, 1795240857.5)
        assert [event.action for event in events] == ["start", "die", "start", "die", "start"]
        assert asked.events("train", 0, 2e9) == ()

    def test_gives_its_log(self, trainer: FakeEngine) -> None:
        assert len(DockerClient(trainer.path).log("trainer", tail=6, tty=False)) == 6
        assert "tail=6" in trainer.asked[-1]

    def test_may_have_no_log_to_read_back(self, trainer: FakeEngine) -> None:
        asked = DockerClient(trainer.path)
        asked.inspect("trainer")
        trainer.status = 501
        assert asked.log("trainer", tail=6, tty=False) == []


class TestItsVersion:
    @pytest.mark.parametrize(
        ("theirs", "common"),
        [("1.41", "1.41"), ("1.44", "1.44"), ("1.9", "1.9"), ("1.99", "1.54"), ("2.0", "1.54")],
    )
    def test_is_the_newest_that_both_know(self, theirs: str, common: str) -> None:
        assert common_version(theirs) == common

    def test_is_ours_where_it_does_not_say(self) -> None:
        assert common_version("") == common_version("what?") == "1.54"

    def test_is_asked_for_once(self, trainer: FakeEngine) -> None:
        asked = DockerClient(trainer.path)
        asked.inspect("trainer")
        asked.inspect("trainer")
        assert trainer.asked == ["/_ping", *["/v1.41/containers/trainer/json"] * 2]

    def test_may_be_another_after_an_upgrade(self, trainer: FakeEngine) -> None:
        asked = DockerClient(trainer.path)
        asked.inspect("trainer")
        trainer.oldest, trainer.newest = (1, 44), (1, 52)
        assert state_of(asked) == "failing"
        assert asked.inspect("trainer") is not None
        assert trainer.asked[-1] == "/v1.52/containers/trainer/json"


class TestAnEngineThatIsAway:
    def test_has_no_socket(self, tmp_path: Path) -> None:
        assert state_of(DockerClient(tmp_path / "docker.sock")) == "missing"

    def test_does_not_listen(self, engine: FakeEngine) -> None:
        engine.stop()
        assert state_of(DockerClient(engine.path)) == "refused"

    def test_is_not_for_us(
        self, engine: FakeEngine, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        engine.path.parent.chmod(0o755)
        engine.path.chmod(0o600)
        with as_nobody():
            assert state_of(DockerClient(engine.path)) == "denied"

    def test_answers_with_an_error(self, engine: FakeEngine) -> None:
        engine.status = 500
        with pytest.raises(DockerError, match=r"status 500: .*does not feel well"):
            DockerClient(engine.path).inspect("trainer")

    def test_answers_with_something_else(self, engine: FakeEngine) -> None:
        engine.containers["trainer"] = b"<html>"
        assert state_of(DockerClient(engine.path)) == "failing"

    def test_answers_without_end(
        self, trainer: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(docker_client, "_MAX_RESPONSE_BYTES", 1000)
        assert state_of(DockerClient(trainer.path)) == "failing"

    def test_hangs(self, tmp_path: Path) -> None:
        path = tmp_path / "s"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            began = time.monotonic()
            assert state_of(DockerClient(path, timeout=0.05)) == "failing"
            assert time.monotonic() - began < 60

    def test_hangs_up(self, tmp_path: Path) -> None:
        path = tmp_path / "s"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()

            def hang_up() -> None:
                server.accept()[0].close()

            threading.Thread(target=hang_up, daemon=True).start()
            assert state_of(DockerClient(path)) == "failing"

    def test_comes_back(self, trainer: FakeEngine) -> None:
        asked = DockerClient(trainer.path)
        trainer.stop()
        assert state_of(asked) == "refused"
        trainer.start()
        assert asked.inspect("trainer") is not None


def test_nothing_stays_open(trainer: FakeEngine) -> None:
    asked = DockerClient(trainer.path)
    asked.inspect("trainer")

    def ours() -> int:
        return sum(1 for link in _open_links() if link.startswith("socket:"))

    before = ours()
    for _ in range(20):
        asked.inspect("trainer")
    assert ours() <= before + 2  # the fake's own side may lag behind


def _open_links() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor by which this folder is read
            found.append(str(entry.readlink()))
    return found
