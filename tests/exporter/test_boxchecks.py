"""Whether the box lets a run start: memory, ports, no restart loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter import boxchecks
from trainwarden_exporter.collectors.containers import ContainerKey, state_path
from trainwarden_exporter.config import Config
from trainwarden_exporter.containers.past import Past
from trainwarden_exporter.findings import Finding, Subject
from trainwarden_exporter.processes.procfs import Identity, start_timestamp
from trainwarden_exporter.processes.startlog import start_log_path
from trainwarden_exporter.statefile import StateFile

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

LOOP, PAUSES = (34.0, 17.0, 0.0), (500.0, 250.0, 0.0)


def config(**run: Any) -> dict[str, Any]:
    worker = {"name": "server", "match": {"command": "sglang"}}
    return {"runs": [{"name": "grpo", "workers": [worker], **run}]}


def judged(
    check: Callable[[Subject], Finding | None], content: dict[str, Any], **more: Any
) -> tuple[str, str]:
    finding = check(Subject(Config.model_validate(content), **more))
    assert finding is not None
    return finding.verdict, " | ".join((finding.seen, *finding.details))


class TestMemory:
    def test_that_is_available_is_told(self) -> None:
        given, said = judged(boxchecks.check_memory, {"host": {"memory_available_floor": "1MiB"}})
        assert given == "ok"
        assert said.endswith("available")

    def test_under_its_floor_refuses(self) -> None:
        given, said = judged(boxchecks.check_memory, {"host": {"memory_available_floor": "900TiB"}})
        assert given == "refuse"
        assert said.endswith("available, 900 TiB should be")


class TestPorts:
    def server(self, url: str, **more: Any) -> dict[str, Any]:
        server = {"name": "sglang-0", "engine": "sglang", "url": url, **more}
        return config(inference=[server])

    def test_that_are_free_are_told(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            port = taken.getsockname()[1]
            one = self.server(f"http://127.0.0.1:{port}", worker="server")
            assert judged(boxchecks.check_ports, one) == ("ok", f"free: {port}")

    @pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
    def test_that_are_taken_refuse_and_whoever_holds_them_is_named(self, address: str) -> None:
        with socket.create_server((address, 0)) as server:
            port = server.getsockname()[1]
            one = self.server(f"http://localhost:{port}", worker="server")
            given, said = judged(boxchecks.check_ports, one)
        assert given == "refuse"
        assert f"1 port of the run taken already | {port} (grpo/sglang-0): pid {os.getpid()}, " in (
            said
        )

    def test_that_another_holds_out_of_sight_refuse_as_well(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boxchecks, "read_listeners", lambda *_: {})
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = self.server(f"http://127.0.0.1:{server.getsockname()[1]}", worker="server")
            assert "by whom is not seen from here" in judged(boxchecks.check_ports, one)[1]

    def test_of_servers_that_are_not_ours_may_be_taken(self) -> None:
        """One without a worker of the run was there before it, and one elsewhere is elsewhere."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            for one in (
                self.server(f"http://127.0.0.1:{port}"),
                self.server(f"http://gpu-7.example:{port}", worker="server"),
                config(),
            ):
                assert boxchecks.check_ports(Subject(Config.model_validate(one))) is None

    @pytest.mark.parametrize(
        ("url", "port"),
        [
            ("http://127.0.0.1:30000", 30000),
            ("http://[::1]:30000/v1", 30000),
            ("https://localhost", 443),
            ("http://0.0.0.0:8000", 8000),
            ("http://10.0.0.7:8000", None),
            (None, None),
        ],
    )
    def test_of_this_machine_are_known_by_their_address(
        self, url: str | None, port: int | None
    ) -> None:
        assert boxchecks.local_port(url) == port


class TestALoop:
    def looping(
        self, folder: Path, ago: tuple[float, ...], container: dict[str, Any]
    ) -> dict[str, Any]:
        """A configuration and the file that remembers starts, `ago` seconds before `NOW`."""
        path = state_path(folder, ContainerKey("grpo", "pod"))
        past = Past(
            starts=tuple(self.now() - seconds for seconds in ago),
            starts_total=len(ago),
            exit_code=128,
            line="fatal: exists",
            id="a boot/100",
        )
        StateFile(path, Past, empty=Past()).save(past)
        content = config(containers=[{"name": "pod", **container}])
        return {**content, "state_folder": folder}

    @staticmethod
    def now() -> float:
        """Twenty minutes after the boot."""
        return start_timestamp(Identity(1, 120_000))

    def test_of_a_container_refuses_and_is_named(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        content["docker"] = {"socket": tmp_path / "none.sock"}
        given, said = judged(boxchecks.check_loops, content, now=self.now())
        assert given == "refuse"
        assert (
            "container grpo/pod was started 3 times within ten minutes, every 17 s, ended with exit"
            " code 128: fatal: exists"
        ) in said

    def test_is_not_what_starts_now_and_then(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, PAUSES, {"docker": "pod"})
        assert judged(boxchecks.check_loops, content, now=self.now())[0] == "ok"
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        assert judged(boxchecks.check_loops, content, now=self.now() + 700)[0] == "ok"

    def test_counts_the_start_that_nobody_has_counted_yet(
        self, tmp_path: Path, proc: FakeProc
    ) -> None:
        """As where the check is what the start command begins with."""
        content = self.looping(tmp_path, LOOP[:2], {"self": True})
        proc.add(1, start=120_000)
        for _ in range(2):  # it looks only: the second time is as the first
            finding = boxchecks.check_loops(
                Subject(Config.model_validate(content), now=self.now()), root=proc.root
            )
            assert finding is not None
            assert "was started 3 times" in finding.details[0]

    def test_of_a_worker_refuses_too(self, tmp_path: Path) -> None:
        path = start_log_path(tmp_path)
        times = {str(ago): self.now() - ago for ago in LOOP}
        kept = {"grpo/server": times}
        StateFile(path, dict[str, dict[str, float]], empty={}).save(kept)
        content = {**config(), "state_folder": tmp_path}
        given, said = judged(boxchecks.check_loops, content, now=self.now())
        assert given == "refuse"
        assert "worker grpo/server was started 3 times within ten minutes, every 17 s" in said

    def test_of_another_run_is_no_matter(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        content["runs"].append({"name": "other", "containers": [{"name": "pod", "docker": "b"}]})
        content["docker"] = {"socket": tmp_path / "none.sock"}
        assert judged(boxchecks.check_loops, content, now=self.now(), run="other")[0] == "ok"

    def test_is_nobodys_where_nothing_is_watched(self) -> None:
        assert boxchecks.check_loops(Subject(Config())) is None
