"""Whether the host lets a run start: memory, ports, no restart loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.containers.config import ContainerKey, history_path
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.preflight import host
from trainwarden_exporter.preflight.report import Finding, PreflightContext
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.start_history import start_log_path
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.state_file import StateFile

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

LOOP, PAUSES = (34.0, 17.0, 0.0), (500.0, 250.0, 0.0)


def config(**run: Any) -> dict[str, Any]:
    worker = {"name": "server", "match": {"command": "sglang"}}
    return {"runs": [{"name": "grpo", "workers": [worker], **run}]}


def results(
    check: Callable[[PreflightContext], Finding | None], content: dict[str, Any], **more: Any
) -> tuple[str, str]:
    finding = check(PreflightContext(Config.model_validate(content), **more))
    assert finding is not None
    return finding.result, " | ".join((finding.observed, *finding.details))


class TestMemory:
    def test_that_is_available_is_reported(self) -> None:
        given, message = results(host.check_memory, {"host": {"memory_available_floor": "1MiB"}})
        assert given == "ok"
        assert message.endswith("available")

    def test_under_its_floor_refuses(self) -> None:
        given, message = results(host.check_memory, {"host": {"memory_available_floor": "900TiB"}})
        assert given == "refuse"
        assert message.endswith("available, minimum 900 TiB")


class TestPorts:
    def server(self, url: str, **more: Any) -> dict[str, Any]:
        server = {"name": "sglang-0", "engine": "sglang", "url": url, **more}
        return config(inference=[server])

    def test_that_are_free_are_reported(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            port = taken.getsockname()[1]
            one = self.server(f"http://127.0.0.1:{port}", worker="server")
            assert results(host.check_ports, one) == ("ok", f"free: {port}")

    @pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
    def test_that_are_taken_refuse_and_their_holders_are_named(self, address: str) -> None:
        with socket.create_server((address, 0)) as server:
            port = server.getsockname()[1]
            one = self.server(f"http://localhost:{port}", worker="server")
            given, message = results(host.check_ports, one)
        assert given == "refuse"
        assert f"1 port of the run in use | {port} (grpo/sglang-0): pid {os.getpid()}, " in (
            message
        )

    def test_that_another_holds_out_of_sight_refuse_as_well(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            hidden = [one._replace(pid=None) for one in psutil.net_connections("tcp")]
            monkeypatch.setattr(psutil, "net_connections", lambda _: hidden)
            one = self.server(f"http://127.0.0.1:{server.getsockname()[1]}", worker="server")
            assert "process not visible from here" in results(host.check_ports, one)[1]

    def test_of_servers_that_are_not_ours_may_be_taken(self) -> None:
        """One without a worker of the run was there before it, and one elsewhere is elsewhere."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            for one in (
                self.server(f"http://127.0.0.1:{port}"),
                self.server(f"http://gpu-7.example:{port}", worker="server"),
                config(),
            ):
                assert host.check_ports(PreflightContext(Config.model_validate(one))) is None

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
        assert host.local_port(url) == port


class TestALoop:
    def looping(
        self, folder: Path, ago: tuple[float, ...], container: dict[str, Any]
    ) -> dict[str, Any]:
        """A configuration and the file that remembers starts, `ago` seconds before `NOW`."""
        path = history_path(folder, ContainerKey("grpo", "pod"))
        history = ContainerHistory(
            starts=tuple(self.now() - seconds for seconds in ago),
            starts_total=len(ago),
            exit_code=128,
            line="fatal: exists",
            id="a boot/100",
        )
        StateFile(path, ContainerHistory, empty=ContainerHistory()).save(history)
        content = config(containers=[{"name": "pod", **container}])
        return {**content, "state_folder": folder}

    @staticmethod
    def now() -> float:
        """Twenty minutes after the boot."""
        return start_timestamp(Identity(1, 120_000))

    def test_of_a_container_refuses_and_is_named(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        content["docker"] = {"socket": tmp_path / "none.sock"}
        given, message = results(host.check_loops, content, now=self.now())
        assert given == "refuse"
        assert (
            "container grpo/pod started 3 times within ten minutes, every 17 s, ended with exit"
            " code 128: fatal: exists"
        ) in message

    def test_is_not_what_starts_now_and_then(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, PAUSES, {"docker": "pod"})
        assert results(host.check_loops, content, now=self.now())[0] == "ok"
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        assert results(host.check_loops, content, now=self.now() + 700)[0] == "ok"

    def test_counts_the_start_that_nobody_has_counted_yet(
        self, tmp_path: Path, proc: FakeProc
    ) -> None:
        """As where the check is what the start command begins with."""
        content = self.looping(tmp_path, LOOP[:2], {"self": True})
        proc.add(1, start=120_000)
        for _ in range(2):  # it looks only: the second time is as the first
            finding = host.check_loops(
                PreflightContext(Config.model_validate(content), now=self.now()), root=proc.root
            )
            assert finding is not None
            assert "started 3 times" in finding.details[0]

    def test_of_a_worker_refuses_too(self, tmp_path: Path) -> None:
        path = start_log_path(tmp_path)
        times = {str(ago): self.now() - ago for ago in LOOP}
        kept = {"grpo/server": times}
        StateFile(path, dict[str, dict[str, float]], empty={}).save(kept)
        content = {**config(), "state_folder": tmp_path}
        given, message = results(host.check_loops, content, now=self.now())
        assert given == "refuse"
        assert "worker grpo/server started 3 times within ten minutes, every 17 s" in message

    def test_of_another_run_is_no_matter(self, tmp_path: Path) -> None:
        content = self.looping(tmp_path, LOOP, {"docker": "pod"})
        content["runs"].append({"name": "other", "containers": [{"name": "pod", "docker": "b"}]})
        content["docker"] = {"socket": tmp_path / "none.sock"}
        assert results(host.check_loops, content, now=self.now(), run="other")[0] == "ok"

    def test_is_no_leftover_where_no_run_is_watched(self) -> None:
        assert host.check_loops(PreflightContext(Config())) is None


class TestExitStatuses:
    FINISHING = config(workers=[{"name": "a", "match": {"command": "-m a"}, "finishes": True}])

    @pytest.mark.parametrize(("available", "result"), [(True, "ok"), (False, "warn")])
    def test_a_kernel_without_them_is_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, available: bool, result: str
    ) -> None:
        monkeypatch.setattr(host, "exit_statuses_available", lambda: available)

        assert results(host.check_exit_statuses, self.FINISHING)[0] == result

    def test_where_no_worker_finishes_they_do_not_matter(self) -> None:
        assert host.check_exit_statuses(PreflightContext(Config())) is None
