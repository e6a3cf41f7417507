from __future__ import annotations

import resource
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import ConfigError, NoData
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.config import RunWorkers, WorkerConfig
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import FakeProc, Start

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def run(*workers: dict[str, Any], name: str = "demo") -> RunWorkers:
    return RunWorkers.model_validate({"name": name, "workers": workers})


def rollout(**more: Any) -> dict[str, Any]:
    return {"name": "rollout-0", "role": "rollout", "match": {"command": "--rollout-0"}, **more}


def samples(collector: WorkersCollector) -> Samples:
    """Every sample of one collection by short name and those labels that not all have."""
    found: Samples = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            more = [(k, v) for k, v in sample.labels.items() if k not in ("run", "worker", "role")]
            name = sample.name.removeprefix("trainwarden_worker_")
            found[name, tuple(more)] = sample.value
    return found


def value(collector: WorkersCollector, name: str, **labels: str) -> float | None:
    return samples(collector).get((name, tuple(labels.items())))


class TestConfiguration:
    def test_little_configuration_is_needed(self) -> None:
        worker = WorkerConfig.model_validate({"name": "a", "match": {"command": "x"}})

        assert (worker.role, worker.expected, worker.finishes, worker.pss) == (
            "worker",
            1,
            False,
            False,
        )
        assert (worker.memory_limit, worker.age_limit) == (None, None)

    def test_sizes_and_times_are_written_as_people_do(self) -> None:
        (worker,) = run(rollout(memory_limit="8GiB", age_limit="1h")).workers

        assert (worker.memory_limit, worker.age_limit) == (8 * 2**30, 3600)

    @pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "a\n", "x" * 101, "ä"])
    def test_a_name_is_one_plain_word(self, name: str) -> None:
        with pytest.raises(ValidationError):
            run(rollout(name=name))
        with pytest.raises(ValidationError):
            run(name=name)

    @pytest.mark.parametrize(
        "more",
        [{"expected": -1}, {"memory_limit": 0}, {"age_limit": 0}, {"role": ""}, {"limit": "8GiB"}],
    )
    def test_what_cannot_be_meant_is_refused(self, more: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            run(rollout(**more))

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "{name: a, match: {command: y}}",
                ":5: workers[1].name: another worker is named a",
            ),
            (
                "{name: b, match: {descendant_of: c}}",
                ":5: workers[1].match.descendant_of: no worker of this run has the name c",
            ),
            (
                "{name: b, match: {descendant_of: b}}",
                ":5: workers[1].match.descendant_of: cycle: b → b",
            ),
            (
                "{name: b, match: {descendant_of: c}}\n  - {name: c, match: {descendant_of: b}}",
                ":5: workers[1].match.descendant_of: cycle: b → c → b",
            ),
            ("{name: b, match: {}}", ":5: workers[1].match: at least one condition is needed"),
        ],
    )
    def test_an_error_is_shown_where_it_stands(self, text: str, problem: str) -> None:
        content = f"name: demo\nworkers:\n  - name: a\n    match: {{command: x}}\n  - {text}\n"

        with pytest.raises(ConfigError) as caught:
            loader.parse(content, Path("exporter.yml"), RunWorkers)
        assert f"exporter.yml{problem}" in str(caught.value)


class TestAWorkerThatNeverRan:
    def test_is_there_with_zeros(self, proc: FakeProc) -> None:
        collector = WorkersCollector(
            [run(rollout(memory_limit="1KiB", age_limit="1m", expected=2))], root=proc.root
        )
        found = samples(collector)

        assert {name: one for (name, more), one in found.items() if not more} == {
            "processes": 0,
            "expected_processes": 2,
            "tree_processes": 0,
            "resident_bytes": 0,
            "memory_bytes": 0,
            "cpu_seconds_total": 0,
            "restarts_total": 0,
            "read_bytes_total": 0,
            "written_bytes_total": 0,
            "memory_limit_bytes": 1024,
            "age_limit_seconds": 60,
            "recent_starts": 0,
            "finished": 0,
            "trainwarden_run_workers_finished": 0,
        }
        selector = (("selector", "command: --rollout-0"), ("nearest", ""))
        assert found.pop(("unmatched_selector_info", selector)) == 1
        assert found.pop(("unconfirmed_missing_processes", (("reason", "never_seen"),))) == 2
        assert [one.unconfirmed for one in collector.liveness] == [True]
        labelled = {name for name, more in found if more}
        assert labelled == {"process_states", "exits_total"}
        assert {one for (name, more), one in found.items() if more} == {0}

    def test_nor_one_whose_pid_file_cannot_be_read(self, proc: FakeProc, tmp_path: Path) -> None:
        path = tmp_path / "rollout.pid"
        path.write_text("10")
        proc.add(10, ["a"])

        def start() -> WorkersCollector:
            watched = run(rollout(match={"pid_file": path}))
            return WorkersCollector([watched], root=proc.root, state_folder=tmp_path / "state")

        assert samples(start())["processes", ()] == 1
        path.unlink()
        path.symlink_to(path)
        found = samples(start())
        assert found["unconfirmed_missing_processes", (("reason", "never_seen"),)] == 1
        assert ("missing_processes", ()) not in found

    def test_without_any_worker_there_is_nothing_to_see(self, proc: FakeProc) -> None:
        with pytest.raises(NoData):
            WorkersCollector([run()], root=proc.root).collect()

    def test_series_are_labelled_by_the_configured_names(self, proc: FakeProc) -> None:
        collector = WorkersCollector([run(rollout())], root=proc.root)

        for family in collector.collect():
            if family.metric.labels == ("run",):
                continue
            for sample in family.samples:
                assert list(sample.labels.items())[:3] == [
                    ("run", "demo"),
                    ("worker", "rollout-0"),
                    ("role", "rollout"),
                ]


class TestAWorkerInALoop:
    @staticmethod
    def clock() -> float:
        """Two minutes after the boot."""
        return start_timestamp(Identity(0, 12_000))

    def test_is_identified_by_its_starts_though_the_exporter_is_in_one_too(
        self, proc: FakeProc, tmp_path: Path
    ) -> None:
        found: Samples = {}
        for life in range(4):
            proc.add(10 + life, ["python", "--rollout-0"], start=5000 + 1700 * life)
            fresh = WorkersCollector(
                [run(rollout())], state_folder=tmp_path, root=proc.root, clock=self.clock
            )
            found = samples(fresh)
            proc.remove(10 + life)

        assert found["recent_starts", ()] == 4
        assert found["restart_period_seconds", ()] == pytest.approx(17)
        assert found["restarts_total", ()] == 0

    def test_has_no_period_before_the_third_start(self, proc: FakeProc) -> None:
        two = WorkersCollector([run(rollout(expected=2))], root=proc.root, clock=self.clock)
        periods = []
        for start in (5000, 7000, 9000):
            for rank in (1, 2):
                proc.add(start + rank, ["python", "--rollout-0"], start=start)
            periods.append(value(two, "restart_period_seconds"))

        assert periods == [None, None, pytest.approx(20)]
        assert value(two, "recent_starts") == 6


class TestARunAsAWhole:
    """Its trainer by the role, else by the name, else all that were given no role."""

    @staticmethod
    def found(collector: WorkersCollector) -> dict[str, float]:
        prefix = "trainwarden_run_"
        there = samples(collector)
        return {
            name.removeprefix(prefix): one for (name, _), one in there.items() if prefix in name
        }

    @pytest.mark.parametrize(
        ("workers", "trainers"),
        [
            ([("a", "trainer"), ("b", "trainer"), ("trainer", "other"), ("d", "worker")], "ab"),
            ([("a", "other"), ("trainer", "other"), ("d", "worker")], ["trainer"]),
            ([("a", "worker"), ("b", "worker"), ("c", "rollout")], "ab"),
            ([("a", "rollout")], ""),
        ],
    )
    def test_who_trains(self, workers: list[tuple[str, str]], trainers: Sequence[str]) -> None:
        config = run(
            *({"name": name, "role": role, "match": {"command": "x"}} for name, role in workers)
        )
        assert [worker.name for worker in config.trainers] == list(trainers)

    def test_the_trainers_are_added_up(self, proc: FakeProc) -> None:
        roles = {"a": "trainer", "b": "trainer", "c": "rollout", "d": "evaluation"}
        collector = WorkersCollector(
            [run(*({"name": n, "role": r, "match": {"command": n}} for n, r in roles.items()))],
            root=proc.root,
        )
        for pid, name in enumerate("aabcd", 10):
            proc.add(pid, [name], start=100 * pid)
        began = {pid: start_timestamp(Identity(0, 100 * pid)) for pid in (11, 12, 13)}
        assert self.found(collector) == {
            "trainer_processes": 3,
            "trainer_start_timestamp_seconds": began[12],
            "trainer_finished": 0,
            "workers_finished": 0,
            "newest_start_timestamp_seconds": began[13],
        }
        proc.remove(12)
        proc.remove(13)
        assert self.found(collector)["trainer_processes"] == 2
        assert self.found(collector)["newest_start_timestamp_seconds"] == began[11] - 1

    @pytest.mark.parametrize(("starts", "newest"), [(1, 10), (2, 11)])
    def test_a_command_that_is_added_to_a_run_is_no_newest_start(
        self, proc: FakeProc, starts: int, newest: int
    ) -> None:
        """A start is a sign of trouble: a worker may have been restarted between two scrapes."""
        proc.add(10, ["python", "train.py"], start=1000)
        proc.add(11, ["python", "--rollout-0"], start=1100)
        one = Announcement(run="demo", worker="rollout-0", pid=11, starts=starts)
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        trainer = {"name": "trainer", "role": "trainer", "match": {"command": "train"}}
        collector = WorkersCollector(
            [run(trainer, rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        began = start_timestamp(Identity(0, 1000 + 100 * (newest - 10)))
        assert self.found(collector)["newest_start_timestamp_seconds"] == began

    def test_without_a_trainer_there_are_no_trainer_samples(self, proc: FakeProc) -> None:
        proc.add(10, ["--rollout-0"])
        collector = WorkersCollector([run(rollout()), run(name="idle")], root=proc.root)
        assert list(self.found(collector)) == ["newest_start_timestamp_seconds", "workers_finished"]


class TestWhatIsThereOnlyInTrouble:
    NAMES = (
        "missing_processes",
        "memory_excess_bytes",
        "recent_restarts",
        "excess_restarts",
        "aging_memory_bytes",
        "age_excess_seconds",
    )

    def found(self, collector: WorkersCollector) -> dict[str, float]:
        """What there is of it."""
        there = samples(collector)
        return {name: there[name, ()] for name in self.NAMES if (name, ()) in there}

    def test_a_worker_that_is_well_has_none_of_it(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"], pages=1)
        limited = rollout(memory_limit="4KiB")
        assert self.found(WorkersCollector([run(limited)], root=proc.root)) == {}

    def test_processes_that_are_missing(self, proc: FakeProc) -> None:
        collector = WorkersCollector([run(rollout(expected=3))], root=proc.root)
        proc.add(10, ["python", "--rollout-0"])
        proc.add(11, ["python", "--rollout-0"], state="Z")
        assert self.found(collector) == {"missing_processes": 2}
        proc.add(12, ["python", "--rollout-0"])
        proc.add(13, ["python", "--rollout-0"])
        assert self.found(collector) == {}
        proc.add(14, ["python", "--rollout-0"])
        assert self.found(collector) == {}

    def test_memory_above_the_limit(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"], pages=3)
        limited = WorkersCollector([run(rollout(memory_limit="4KiB"))], root=proc.root)
        assert self.found(limited) == {"memory_excess_bytes": 2 * 4096}
        assert self.found(WorkersCollector([run(rollout())], root=proc.root)) == {}

    def test_what_has_nearly_reached_its_age_limit_and_what_has_passed_it(
        self, proc: FakeProc
    ) -> None:
        proc.add(10, ["python", "--rollout-0"], start=100, pages=3)
        began, found = start_timestamp(Identity(0, 100)), list[dict[str, float]]()
        for now in (began + age for age in (1800, 1801, 3600, 3601)):
            collector = WorkersCollector(
                [run(rollout(age_limit="1h"))], root=proc.root, clock=partial(float, now)
            )
            found.append(self.found(collector))
        aging = {"aging_memory_bytes": 3 * 4096}
        assert found == [{}, aging, aging, {**aging, "age_excess_seconds": 3601}]

    def test_a_worker_that_was_too_old_is_reported_for_two_minutes_more(
        self, proc: FakeProc
    ) -> None:
        proc.add(10, ["python", "--rollout-0"], start=100)
        moments = iter([3700.0, 3705.0, 3820.0, 3821.0])
        boot = start_timestamp(Identity(0, 0))
        before, collector = (
            WorkersCollector(
                [run(rollout(age_limit="1h"))], root=proc.root, clock=lambda: boot + next(moments)
            )
            for _ in range(2)
        )
        assert self.found(before)["age_excess_seconds"] == 3699
        collector.take_over_from(before)
        proc.remove(10)
        gone = {"missing_processes": 1}
        assert self.found(collector) == {**gone, "age_excess_seconds": 0}
        assert self.found(collector) == {**gone, "age_excess_seconds": 0}
        assert self.found(collector) == gone

    def test_restarts_also_of_a_life_before(self, proc: FakeProc, tmp_path: Path) -> None:
        clock, found = count(1e9, 17), list[dict[str, float]]()
        proc.add(10, ["python", "--rollout-0"])
        for pids in ((11, 12), (13,)):
            collector = WorkersCollector(
                [run(rollout())],
                state_folder=tmp_path,
                root=proc.root,
                clock=lambda: next(clock),
            )
            samples(collector)
            for pid in pids:
                proc.remove(pid - 1)
                proc.add(pid, ["python", "--rollout-0"], start=100 * pid)
                found.append(self.found(collector))
        assert found == [
            {"recent_restarts": 1},
            {"recent_restarts": 2, "excess_restarts": 1},
            {"recent_restarts": 3, "excess_restarts": 2},
        ]


class TestAWorkerThatRuns:
    def test_is_measured_with_its_children(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"], start=500, ticks=150)
        proc.add(11, ["sh"], parent=10, start=600, ticks=50, state="D")
        proc.add(12, ["sh"], parent=10, start=700, state="Z", ticks=25)
        proc.add(13, ["python", "--rollout-0"], start=400)
        found = samples(WorkersCollector([run(rollout())], root=proc.root))
        plain = {name: one for (name, more), one in found.items() if not more}
        oldest = read_process(13, proc.root)

        assert oldest is not None
        assert plain["processes"] == 2
        assert plain["tree_processes"] == 3
        assert plain["cpu_seconds_total"] == 2.25
        assert plain["start_timestamp_seconds"] == start_timestamp(oldest.identity)
        assert found["process_states", (("state", "zombie"),)] == 1
        assert found["process_states", (("state", "disk_sleep"),)] == 1
        assert found["process_states", (("state", "sleeping"),)] == 2

    def test_a_zombie_is_not_running(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"])
        collector = WorkersCollector([run(rollout())], root=proc.root)
        samples(collector)
        proc.add(10, [], state="Z", status=256)
        found = samples(collector)

        assert found["processes", ()] == 0
        assert found["resident_bytes", ()] == 0
        assert ("start_timestamp_seconds", ()) not in found
        assert found["process_states", (("state", "zombie"),)] == 1
        assert found["exits_total", (("status", "1"),)] == 1
        assert found["last_exit_code", ()] == 1

    def test_what_may_not_be_read_is_absent_and_not_zero(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"])
        found = samples(WorkersCollector([run(rollout(pss=True))], root=proc.root))

        absent = {"pss_bytes", "open_files", "read_bytes_total", "written_bytes_total"}
        assert not absent & {name for name, _ in found}

    def test_pss_is_read_seldom_near_the_limit_and_always_above_it(self, proc: FakeProc) -> None:
        for pid in (10, 11):
            files = {"statm": "9 100 0 0 0 0 0", "smaps_rollup": "Pss: 300 kB\n"}
            proc.add(pid, ["python", "--rollout-0"], files=files)
        now = [0.0]

        def shown(limit: int, *moments: float) -> list[bool]:
            settings = rollout(memory_limit=f"{limit}B", expected=2)
            collector = WorkersCollector([run(settings)], root=proc.root, clock=lambda: now[0])
            found = []
            for now[0] in moments:
                found.append(("pss_bytes", ()) in samples(collector))
            return found

        resident = 200 * resource.getpagesize()
        assert shown(int(resident / 0.95), 0, 5, 29, 30, 35) == [True, False, False, True, False]
        assert shown(int(resident / 1.05), 0, 5, 10) == [True, True, True]
        assert shown(int(resident / 0.85), 0, 5, 30) == [False, False, False]

    def test_shared_pages_count_once_between_two_readings_of_pss_too(self, proc: FakeProc) -> None:
        def grow(pages: int) -> None:
            for pid in (10, 11):
                text = {"statm": f"9 {pages} 0 0 0 0 0", "smaps_rollup": f"Pss: {2 * pages} kB\n"}
                proc.add(pid, ["python", "--rollout-0"], files=text)

        now = [0.0]
        settings = rollout(memory_limit="820KiB", expected=2)
        collector = WorkersCollector([run(settings)], root=proc.root, clock=lambda: now[0])
        seen = []
        for now[0], pages in ((0, 90), (5, 95), (10, 100), (35, 101), (40, 102), (70, 60)):
            grow(pages)
            seen.append(samples(collector)["memory_bytes", ()] / 1024)
        # half of it is shared: of 200 pages 400 KiB; the last time far below the limit
        assert seen == [720, 380, 420, 404, 412, 76]

        for pid in (10, 11):
            proc.remove(pid)
        samples(collector)
        grow(60)
        assert samples(collector)["memory_bytes", ()] == 480 * 1024

    def test_the_clock_of_the_collector_dates_an_end(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"])
        collector = WorkersCollector([run(rollout())], root=proc.root, clock=lambda: 1234.5)
        samples(collector)
        proc.remove(10)
        found = samples(collector)

        assert found["last_exit_timestamp_seconds", ()] == 1234.5
        assert found["exits_total", (("status", "unknown"),)] == 1
        assert ("last_exit_code", ()) not in found

    @pytest.mark.parametrize(("worker", "status"), [("rollout-0", "0"), ("other", "unknown")])
    def test_an_announcement_reports_only_the_ends_of_its_own_worker(
        self, proc: FakeProc, worker: str, status: str
    ) -> None:
        proc.add(10, ["python", "--rollout-0"])
        one = Announcement(run="demo", worker=worker, pid=11, exits=((10, 100, 0),))
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        collector = WorkersCollector(
            [run(rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        samples(collector)
        proc.remove(10)

        assert samples(collector)["exits_total", (("status", status),)] == 1

    @pytest.mark.parametrize(("asked", "counted"), [(True, None), (False, 2)])
    def test_a_restart_after_a_stop_by_the_operator_is_part_of_no_loop(
        self, proc: FakeProc, tmp_path: Path, asked: bool, counted: int | None
    ) -> None:
        """Three starts within ten minutes, two of them after a stop by the operator or a crash."""
        announced: list[AnnouncedRuns] = [AnnouncedRuns()]
        clock: list[float] = [0.0]
        collector = WorkersCollector(
            [run(rollout())],
            state_folder=tmp_path,
            root=proc.root,
            clock=lambda: clock[0],
            announced=lambda _now, _before: announced[0],
        )
        for pid in (10, 11, 12):
            start = 1000 * pid
            claimed = start_timestamp(Identity(pid, start)) - 0.1
            one = Announcement(
                run="demo", worker="rollout-0", pid=pid, counted_since=claimed if asked else 0.0
            )
            announced[0] = AnnouncedRuns({one.key: AnnouncedWorker(one, tmp_path / "a.json", 0)})
            clock[0] = claimed + 3
            if pid > 10:
                proc.remove(pid - 1)
            proc.add(pid, ["python", "--rollout-0"], start=start)
            found = samples(collector)
        assert found.get(("recent_restarts", ())) == counted
        assert found["recent_starts", ()] == (1 if asked else 3)
        assert found["restarts_total", ()] == 2

    def test_an_announced_failure_is_shown_only_while_the_worker_does_not_run(
        self, proc: FakeProc
    ) -> None:
        one = Announcement(
            run="demo", worker="rollout-0", pid=10, state="failed", exits=((10, 100, 9),)
        )
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        collector = WorkersCollector(
            [run(rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        samples(collector)
        assert list(collector.artifacts) == [one]
        proc.add(10, ["python", "--rollout-0"])
        samples(collector)
        assert list(collector.artifacts) == []

    @pytest.mark.parametrize("end", [{"goes_on": ((7, 1),)}, {"final_error": "KeyError"}])
    def test_an_announced_end_is_shown_if_it_may_not_be_one(
        self, proc: FakeProc, end: dict[str, Any]
    ) -> None:
        one = Announcement(run="demo", worker="rollout-0", pid=10, state="finished", **end)
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        collector = WorkersCollector(
            [run(rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        samples(collector)
        assert list(collector.artifacts) == [one]

    def test_a_failure_between_two_collections_has_its_exit_code(self, proc: FakeProc) -> None:
        one = Announcement(
            run="demo",
            worker="rollout-0",
            pid=10,
            state="failed",
            exits=((10, 100, 256),),
            ended_at=1234.5,
        )
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        collector = WorkersCollector(
            [run(rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        found = samples(collector)
        assert found["last_exit_code", ()] == 1
        assert found["last_exit_timestamp_seconds", ()] == 1234.5

    @pytest.mark.parametrize("restarts", [{}, {"own_restarts": ((900.0, 256),)}, {"starts": 2}])
    def test_an_announced_worker_is_shown_with_its_restarts_while_it_runs(
        self, proc: FakeProc, restarts: dict[str, Any]
    ) -> None:
        one = Announcement(run="demo", worker="rollout-0", pid=10, **restarts)
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
        proc.add(10, ["python", "--rollout-0"])
        collector = WorkersCollector(
            [run(rollout())], root=proc.root, announced=lambda _now, _before: announced
        )
        samples(collector)
        assert list(collector.artifacts) == [one]


class TestTotals:
    def test_do_not_fall_when_a_child_dies(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"], ticks=100)
        proc.add(11, ["sh"], parent=10, ticks=900)
        collector = WorkersCollector([run(rollout())], root=proc.root)
        assert value(collector, "cpu_seconds_total") == 10

        proc.remove(11)
        assert value(collector, "cpu_seconds_total") == 10

    def test_outlive_a_reload(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"], ticks=100)
        old = WorkersCollector([run(rollout())], root=proc.root)
        samples(old)
        proc.remove(10)
        proc.add(20, ["python", "--rollout-0"], ticks=50)
        samples(old)

        new = WorkersCollector(
            [run({"name": "other", "match": {"command": "y"}}), run(rollout(), name="b")],
            root=proc.root,
        )
        new.take_over_from(old)
        assert value(new, "restarts_total") == 0  # another run's worker of the same name

        same = WorkersCollector([run(rollout(role="server"))], root=proc.root)
        same.take_over_from(old)
        found = samples(same)
        assert (found["cpu_seconds_total", ()], found["restarts_total", ()]) == (1.5, 1)

    def test_a_restart_during_a_reload_is_seen(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "--rollout-0"])
        old = WorkersCollector([run(rollout())], root=proc.root)
        samples(old)
        proc.remove(10)
        proc.add(20, ["python", "--rollout-0"])
        new = WorkersCollector([run(rollout())], root=proc.root)
        new.take_over_from(old)

        assert value(new, "restarts_total") == 1


READY = "print('ready', flush=True); input();"

# each line that the parent is sent makes it take one step, which it confirms by a line
CHILD = """
import sys
input()
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * (8 << 20))
print("written", flush=True)
input()
"""
PARENT = """
import subprocess, sys
command = [sys.executable, "-S", "-c", sys.argv[1], sys.argv[2]]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print("ready", flush=True)
input()
child.stdin.write(b"go on\\n")
child.stdin.flush()
child.stdout.readline()
print("written", flush=True)
input()
child.communicate(b"end\\n")
print("reaped", flush=True)
input()
"""


class TestRealPrograms:
    MARK = "--rollout-0"

    @pytest.fixture
    def collector(self) -> WorkersCollector:
        return WorkersCollector([run(rollout(pss=True, finishes=True))])

    @staticmethod
    def end(program: subprocess.Popen[str]) -> None:
        program.communicate("\n")

    def test_are_measured(self, start: Start, collector: WorkersCollector) -> None:
        start("block = b'x' * (64 << 20);" + READY, self.MARK)
        found = samples(collector)

        assert found["processes", ()] == 1
        assert 64 << 20 < found["resident_bytes", ()] < 128 << 20
        assert 64 << 20 < found["pss_bytes", ()] < 128 << 20
        assert found["open_files", ()] == 3
        assert found["open_files_limit", ()] > 3
        assert found["read_bytes_total", ()] >= 0

    def test_restart_and_end_with_a_status(self, start: Start, collector: WorkersCollector) -> None:
        first = start(READY + "raise SystemExit(3)", self.MARK)
        samples(collector)
        self.end(first)
        second = start(READY, self.MARK)
        found = samples(collector)
        assert found["restarts_total", ()] == 1
        assert found["processes", ()] == 1

        second.terminate()
        second.wait()
        found = samples(collector)
        assert (found["processes", ()], found["finished", ()]) == (0, 0)
        assert sum(one for (name, _), one in found.items() if name == "exits_total") == 2

    def test_finish(
        self,
        start: Start,
        collector: WorkersCollector,
        wait_until: Callable[[Callable[[], bool]], None],
    ) -> None:
        program = start(READY, self.MARK)
        began = value(collector, "start_timestamp_seconds")
        (life,) = collector.liveness
        assert (life.started, life.finished, life.unconfirmed) == (began, False, False)
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()

        # as a zombie already: nobody has waited for it yet
        wait_until(lambda: value(collector, "finished") == 1)
        (life,) = collector.liveness
        assert (life.started, life.finished) == (None, True)
        found = samples(collector)
        assert (found["last_exit_code", ()], found["exits_total", (("status", "0"),)]) == (0, 1)
        program.wait()
        assert samples(collector)["exits_total", (("status", "0"),)] == 1

    def test_have_finished_for_an_exporter_that_starts_later_too(
        self, start: Start, tmp_path: Path
    ) -> None:
        def fresh() -> WorkersCollector:
            return WorkersCollector([run(rollout(finishes=True))], state_folder=tmp_path / "state")

        exporter, program = fresh(), start(READY, self.MARK)
        samples(exporter)
        self.end(program)
        assert value(exporter, "finished") == 1
        assert value(fresh(), "finished") == 1

        exporter, program = fresh(), start(READY + "raise SystemExit(3)", self.MARK)
        assert value(exporter, "finished") == 0
        self.end(program)
        assert value(exporter, "finished") == 0
        assert value(fresh(), "finished") == 0

    def test_finish_a_run_when_all_of_them_have(self, start: Start) -> None:
        other = {**rollout(finishes=True), "name": "rollout-1", "match": {"command": "--rollout-1"}}
        collector = WorkersCollector([run(rollout(finishes=True), other)])
        programs = [start(READY, mark) for mark in ("--rollout-0", "--rollout-1")]
        found = [samples(collector)]
        for program in programs:
            self.end(program)
            found.append(samples(collector))
        reported = "trainwarden_run_workers_finished"
        assert [there.get((reported, ())) for there in found] == [0, 0, 1]

    def test_never_lose_what_their_children_wrote(
        self, start: Start, collector: WorkersCollector, tmp_path: Path
    ) -> None:
        program = start(PARENT, CHILD, str(tmp_path / "written"), self.MARK)
        assert program.stdin is not None
        assert program.stdout is not None
        before = value(collector, "written_bytes_total")
        assert before is not None
        grown = []
        for _ in range(2):
            program.stdin.write("\n")
            program.stdin.flush()
            program.stdout.readline()
            now = value(collector, "written_bytes_total")
            assert now is not None
            grown.append(now - before)

        if grown[0] == 0:
            pytest.skip("this file system does not account for what is written")
        # the file system may add a block of its own; counted twice or lost, it would be 8 MiB off
        assert all(0 <= growth - (8 << 20) < 1 << 20 for growth in grown)

    def test_of_another_user_are_measured_as_far_as_allowed(
        self,
        start: Start,
        collector: WorkersCollector,
        as_nobody: Callable[[], AbstractContextManager[None]],
    ) -> None:
        start(READY, self.MARK)
        with as_nobody():
            found = samples(collector)

        assert found["processes", ()] == 1
        assert found["resident_bytes", ()] > 0
        names = {name for name, _ in found}
        assert not names & {"pss_bytes", "read_bytes_total", "written_bytes_total"}

    def test_leave_no_open_descriptors_behind(
        self, start: Start, collector: WorkersCollector
    ) -> None:
        def open_now() -> int:
            return len(list(Path("/proc/self/fd").iterdir()))

        samples(collector)
        before = open_now()
        for _ in range(3):
            program = start(READY, self.MARK)
            opened = open_now()
            samples(collector)
            assert open_now() <= opened + 1
            self.end(program)
            samples(collector)
        assert open_now() <= before
