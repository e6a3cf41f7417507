from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes import exit_status
from trainwarden_exporter.processes.absence import AbsenceReason, RunSigns, find_absence_reason
from trainwarden_exporter.processes.exit_status import ExitWatcher, ProcessExit
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.worker_history import RootHistory
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import progress_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.exporter.conftest import FakeProc, Start

    from trainwarden_exporter.frameworks.base import Framework

ENDED_AT = 1000.0
EXIT_1, INTERRUPTED_SHELL = 1 << 8, 130 << 8


def reason(
    *statuses: int | None,
    signs: RunSigns = RunSigns(),  # noqa: B008 - immutable
    finishes: bool = True,
    **more: bool,
) -> AbsenceReason | None:
    history = RootHistory(
        last_exit_timestamp=ENDED_AT if statuses else None,
        _unreplaced_roots={Identity(pid, 1): status for pid, status in enumerate(statuses)},
    )
    known = {"seen": True, "ended_by_reboot": False, "is_only_trainer": True, **more}
    return find_absence_reason(history, signs, finishes=finishes, **known)


@pytest.mark.parametrize(
    ("statuses", "finishes", "expected"),
    [
        ((signal.SIGKILL,), True, None),
        ((EXIT_1,), True, None),
        ((None,), True, AbsenceReason.EXIT_UNKNOWN),
        ((0, None), True, AbsenceReason.EXIT_UNKNOWN),
        ((EXIT_1, None), True, None),
        ((None,), False, None),
        ((), True, AbsenceReason.EXIT_UNKNOWN),
        ((signal.SIGINT,), False, AbsenceReason.INTERRUPTED),
        ((INTERRUPTED_SHELL,), True, AbsenceReason.INTERRUPTED),
        ((signal.SIGINT, signal.SIGKILL), True, None),
    ],
)
def test_an_unknown_exit_is_no_failure_and_an_interrupt_is_deliberate(
    statuses: tuple[int | None, ...], finishes: bool, expected: AbsenceReason | None
) -> None:
    assert reason(*statuses, finishes=finishes) == expected


def test_a_worker_without_any_process_so_far_was_never_seen() -> None:
    assert reason(seen=False, finishes=False) is AbsenceReason.NEVER_SEEN


def test_a_fatal_line_after_the_last_step_shows_that_an_unknown_exit_is_a_failure() -> None:
    failed = RunSigns(progress_at=ENDED_AT - 20, failed_at=ENDED_AT - 10)
    recovered = RunSigns(progress_at=ENDED_AT - 5, failed_at=ENDED_AT - 10)

    assert reason(None, signs=failed) is None
    assert reason(None, signs=recovered) is AbsenceReason.EXIT_UNKNOWN


def test_after_a_reboot_a_worker_that_ran_has_failed() -> None:
    assert reason(ended_by_reboot=True) is None


@pytest.mark.parametrize(
    ("progress_at", "is_only_trainer", "expected"),
    [
        (ENDED_AT + 16, True, AbsenceReason.PROGRESSING),
        (ENDED_AT + 14, True, None),
        (ENDED_AT + 16, False, None),
    ],
)
def test_a_trainer_whose_run_makes_steps_is_not_gone(
    progress_at: float, is_only_trainer: bool, expected: AbsenceReason | None
) -> None:
    signs = RunSigns(progress_at=progress_at)

    assert reason(signal.SIGKILL, signs=signs, is_only_trainer=is_only_trainer) == expected


@dataclass
class Host:
    """Workers on a host, and the progress of their run."""

    collector: WorkersCollector
    tracker: ProgressTracker

    def trainer(self) -> dict[str, float]:
        """What is exported of the trainer's absence."""
        found = {}
        for family in self.collector.collect():
            for sample in family.samples:
                name = sample.name.removeprefix("trainwarden_worker_")
                if name in ("finished", "missing_processes"):
                    found[name] = sample.value
                elif name == "unconfirmed_missing_processes":
                    found[sample.labels["reason"]] = sample.value
        return found


def host(config: dict[str, Any], **more: Any) -> Host:
    run = RunConfig.model_validate(config)
    tracker = ProgressTracker([progress_spec(run)])
    return Host(WorkersCollector([run], run_signs=tracker.signs, **more), tracker)


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel before 6.15: no exit status of processes that are not children."""
    monkeypatch.setattr(exit_status, "_pidfd_info", lambda _: None)


class TestOnAKernelWithoutExitStatuses:
    @pytest.mark.usefixtures("old_kernel")
    def test_that_is_detected(self) -> None:
        assert not exit_status.exit_statuses_available()

    @pytest.mark.usefixtures("old_kernel")
    @pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
    def test_a_run_that_ended_well_is_not_missing(self, framework: Framework, start: Start) -> None:
        finished = [one.name for one in framework.lines if one.phase is Phase.FINISHED]
        log = {"name": "own", "files": ["own.log"], "role": "trainer"}
        worker = {"name": "trainer", "match": {"command": "--my-trainer"}, "finishes": True}
        watched = host({
            "name": "demo", "framework": framework.name, "path": "/run", "logs": [log],
            "workers": [worker],
        })  # fmt: skip
        with start("print('ready', flush=True); input()", "--my-trainer") as program:
            assert watched.trainer() == {"finished": 0}
            for name in finished:
                watched.tracker.record_line(
                    LineEvent("demo", "own", "trainer", name, {}, 1_000_000.0)
                )
            program.communicate("\n")
        expected = {"finished": 1.0} if finished else {"finished": 0.0, "exit_unknown": 1.0}
        assert watched.trainer() == expected

    @pytest.mark.usefixtures("old_kernel")
    def test_a_run_that_reached_its_last_step_has_finished(self, start: Start) -> None:
        watched = host({
            "name": "demo", "progress": {"total_steps": 10},
            "workers": [{"name": "trainer", "match": {"command": "--my-trainer"},
                         "finishes": True}],
        })  # fmt: skip
        with start("print('ready', flush=True); input()", "--my-trainer") as program:
            assert watched.trainer() == {"finished": 0}
            watched.tracker.record_heartbeat("demo", "loop", 10, 1_000_000.0)
            program.communicate("\n")
        assert watched.trainer()["finished"] == 1


def test_a_kernel_with_exit_statuses_is_detected() -> None:
    release = os.uname().release.split(".")
    assert exit_status.exit_statuses_available() == ((int(release[0]), int(release[1])) >= (6, 15))


class TestPresence:
    CONFIG: dict[str, Any] = {  # noqa: RUF012
        "name": "demo",
        "workers": [{"name": "server", "match": {"command": "--server"}}],
    }

    def test_a_worker_is_missing_only_after_it_was_seen(self, proc: FakeProc) -> None:
        watched = host(self.CONFIG, root=proc.root)
        assert watched.trainer() == {"finished": 0, "never_seen": 1}
        proc.add(10, ["python", "--server"])
        assert watched.trainer() == {"finished": 0}
        proc.remove(10)
        assert watched.trainer() == {"finished": 0, "missing_processes": 1}

    def test_that_survives_a_restart_of_the_exporter(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(10, ["python", "--server"])
        build: Callable[[], Host] = partial(
            host, self.CONFIG, root=proc.root, state_folder=tmp_path
        )
        build().trainer()
        proc.remove(10)
        assert build().trainer() == {"finished": 0, "missing_processes": 1}

    @pytest.mark.parametrize(
        ("boot", "expected"), [("one", "exit_unknown"), ("two", "missing_processes")]
    )
    def test_what_a_reboot_ended_is_missing_though_its_end_was_not_observed(
        self, proc: FakeProc, tmp_path: Path, boot: str, expected: str
    ) -> None:
        boot_id = proc.root / "sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text("one\n")
        config = {**self.CONFIG, "workers": [{**self.CONFIG["workers"][0], "finishes": True}]}
        proc.add(10, ["python", "--server"])
        host(config, root=proc.root, state_folder=tmp_path / "state").trainer()
        proc.remove(10)
        boot_id.write_text(f"{boot}\n")
        after = host(config, root=proc.root, state_folder=tmp_path / "state")
        assert after.trainer() == {"finished": 0, expected: 1}
        assert after.trainer() == {"finished": 0, expected: 1}

    def test_a_worker_that_was_stopped_is_not_missing_after_a_restart_of_the_exporter(
        self, proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def build() -> Host:
            return host(self.CONFIG, root=proc.root, state_folder=tmp_path / "state")

        how = iter([signal.SIGINT, signal.SIGKILL])
        monkeypatch.setattr(
            ExitWatcher, "process_exit", lambda *_: ProcessExit(next(how), reaped=True)
        )
        before = build()
        for expected in ("interrupted", "missing_processes"):
            proc.add(10, ["python", "--server"])
            assert before.trainer() == {"finished": 0}
            proc.remove(10)
            assert before.trainer() == {"finished": 0, expected: 1}
            before = build()
            assert before.trainer() == {"finished": 0, expected: 1}
            assert build().trainer() == {"finished": 0, expected: 1}

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (signal.SIGKILL, {"finished": 0, "missing_processes": 1}),
            (EXIT_1, {"finished": 0, "missing_processes": 1}),
            (None, {"finished": 0, "exit_unknown": 1}),
            (0, {"finished": 1}),
        ],
    )
    def test_a_worker_that_failed_is_missing_after_a_restart_of_the_exporter_though_it_may_finish(
        self,
        proc: FakeProc,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        status: int | None,
        expected: dict[str, float],
    ) -> None:
        config = {**self.CONFIG, "workers": [{**self.CONFIG["workers"][0], "finishes": True}]}

        def build() -> Host:
            return host(config, root=proc.root, state_folder=tmp_path / "state")

        monkeypatch.setattr(
            ExitWatcher, "process_exit", lambda *_: ProcessExit(status, reaped=True)
        )
        before = build()
        proc.add(10, ["python", "--server"])
        assert before.trainer() == {"finished": 0}
        proc.remove(10)
        assert before.trainer() == expected
        before = build()
        assert before.trainer() == expected
        assert build().trainer() == expected
        proc.add(11, ["python", "--server"])
        before.trainer()
        proc.remove(11)
        assert build().trainer() == {"finished": 0, "exit_unknown": 1}
