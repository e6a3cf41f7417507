"""A container is followed from look to look, and over restarts of the exporter and the engine."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden_exporter.containers.docker_api import Event, Inspection
from trainwarden_exporter.containers.docker_client import DockerError
from trainwarden_exporter.containers.follower import ContainerFollower, ContainerObservation
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.runtime.state_file import StateFile

FATAL = "fatal: destination path 'AReaL' already exists"


class SimulatedEngine:
    """One container in a loop of its own, as Docker tells of it."""

    def __init__(self) -> None:
        self.now = 100_000.0
        self.container: Inspection | None = None
        self.reported: list[Event] = []
        self.printed: list[tuple[float, str]] = []
        self.error: DockerError | None = None
        self.log_questions: list[int] = []

    def create(self, identity: str = "abc") -> None:
        self.reported.append(Event("create", identity, "trainer", self.now))
        self.container = Inspection(
            identity,
            "created",
            self.now,
            started=None,
            finished=None,
            exit_code=None,
            restart_count=0,
            oom_killed=False,
            health=None,
            tty=False,
        )

    def start(self, *lines: str) -> None:
        assert self.container is not None
        again = self.container.state == "restarting"
        self.container = replace(
            self.container,
            state="running",
            started=self.now,
            exit_code=None,
            restart_count=self.container.restart_count if again else 0,
        )
        self._tell("start")
        self.printed += [(self.now + 0.001, line) for line in lines]

    def end(self, code: int, *, restarts: bool = True) -> None:
        assert self.container is not None
        self.container = replace(
            self.container,
            state="restarting" if restarts else "exited",
            finished=self.now,
            exit_code=code,
            restart_count=self.container.restart_count + restarts,
        )
        self._tell("die", code)

    def loop(self, rounds: int, *, run: float = 16, pause: float = 1, code: int = 128) -> None:
        """Start, print, end and wait, so many times."""
        for _ in range(rounds):
            self.start("Cloning into 'AReaL'...", FATAL)
            self.now += run
            self.end(code)
            self.now += pause

    def forget(self) -> None:
        """As an engine does after its restart."""
        self.reported.clear()

    def inspect(self, name: str) -> Inspection | None:
        self._answer()
        return self.container

    def events(self, name: str, since: float, until: float) -> tuple[Event, ...]:
        self._answer()
        return tuple(event for event in self.reported if since <= event.timestamp <= until)

    def log(self, name: str, *, tail: int, tty: bool) -> list[tuple[float, str]]:
        self._answer()
        self.log_questions.append(tail)
        return self.printed[-tail:]

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def _tell(self, action: str, code: int | None = None) -> None:
        assert self.container is not None
        # the engine's word comes a little later than what it is about
        self.reported.append(Event(action, self.container.id, "trainer", self.now + 0.002, code))


@pytest.fixture
def engine() -> SimulatedEngine:
    return SimulatedEngine()


def follower(engine: SimulatedEngine, path: Path | None = None) -> ContainerFollower:
    state = StateFile(path, ContainerHistory, empty=ContainerHistory())
    return ContainerFollower(engine, "trainer", state, now=lambda: engine.now)


def recent(sighting: ContainerObservation, engine: SimulatedEngine) -> int:
    return len(restart_loop.recent_starts(sighting.history.starts, engine.now))


def look_often(
    follow: ContainerFollower, engine: SimulatedEngine, seconds: float
) -> ContainerObservation:
    """A look every two seconds."""
    end = engine.now + seconds
    sighting = follow()
    while engine.now < end:
        engine.now += 2
        sighting = follow()
    return sighting


def test_a_container_that_is_not_there_is_absent(engine: SimulatedEngine) -> None:
    sighting = follower(engine)()
    assert (sighting.state, sighting.engine, sighting.history) == (
        "absent",
        "ok",
        ContainerHistory(),
    )


def test_a_loop_is_counted_exactly_when_seen_from_the_start(engine: SimulatedEngine) -> None:
    follow = follower(engine)
    engine.create()
    for _ in range(4):
        engine.start("Cloning into 'AReaL'...", FATAL)
        look_often(follow, engine, 16)
        engine.end(128)
        sighting = look_often(follow, engine, 2)
    assert (recent(sighting, engine), sighting.history.starts_total) == (4, 4)
    assert restart_loop.median_interval(sighting.history.starts) == pytest.approx(18, abs=2.1)
    assert (sighting.state, sighting.restarts) == ("restarting", 4)
    assert (sighting.history.exit_code, sighting.history.line) == (128, FATAL)


def test_a_loop_is_counted_as_well_when_first_seen_late(engine: SimulatedEngine) -> None:
    engine.create()
    engine.loop(4)
    sighting = follower(engine)()
    assert (recent(sighting, engine), sighting.history.starts_total) == (4, 4)
    assert restart_loop.median_interval(sighting.history.starts) == pytest.approx(17)
    assert (sighting.history.exit_code, sighting.history.line) == (128, FATAL)


def test_it_is_reported_also_when_the_engine_has_forgotten_it(engine: SimulatedEngine) -> None:
    engine.create()
    engine.loop(6)
    engine.forget()
    sighting = follower(engine)()
    assert (recent(sighting, engine), sighting.history.starts_total) == (6, 6)
    assert sighting.history.exit_code == 128


def test_a_restart_that_a_stop_has_cut_off_is_no_start(
    engine: SimulatedEngine, tmp_path: Path
) -> None:
    """The engine counts it, though it never came."""
    engine.create()
    engine.loop(2)
    follow = follower(engine, tmp_path / "trainer.json")
    follow()
    assert engine.container is not None
    engine.container = replace(engine.container, state="exited")
    assert engine.container.starts == 3
    for late in (follow, follower(engine), follower(engine, tmp_path / "trainer.json")):
        assert late().history.starts_total == 2


def test_what_was_seen_outlives_this_program(engine: SimulatedEngine, tmp_path: Path) -> None:
    engine.create()
    engine.loop(2)
    follower(engine, tmp_path / "trainer.json")()
    engine.loop(2)
    sighting = follower(engine, tmp_path / "trainer.json")()
    assert (recent(sighting, engine), sighting.history.starts_total) == (4, 4)
    engine.forget()
    again = follower(engine, tmp_path / "trainer.json")()
    assert replace(again.history, looked=0) == replace(sighting.history, looked=0)


def test_starts_by_hand_count_as_well(engine: SimulatedEngine) -> None:
    engine.create()
    follow = follower(engine)
    for _ in range(3):
        engine.start()
        engine.now += 20
        engine.end(0, restarts=False)
        engine.now += 1
        sighting = follow()
    assert recent(sighting, engine) == 3
    assert (sighting.state, sighting.restarts) == ("exited", 0)


def test_a_container_that_takes_the_place_of_another_adds_one_start(
    engine: SimulatedEngine,
) -> None:
    engine.create("old")
    engine.start()
    follow = follower(engine)
    engine.now += 30
    follow()
    engine.end(143, restarts=False)
    engine.container = None
    engine.now += 2
    assert follow().state == "absent"
    engine.create("new")
    engine.start()
    engine.now += 2
    sighting = follow()
    assert (recent(sighting, engine), sighting.history.starts_total) == (2, 2)
    assert (sighting.state, sighting.history.exit_code) == ("running", 143)


def test_the_last_line_is_that_of_the_run_that_ended(engine: SimulatedEngine) -> None:
    engine.create()
    engine.start("Traceback:", "RuntimeError: CUDA out of memory")
    engine.now += 5
    engine.end(1)
    engine.now += 0.1
    engine.start("loading", "step 1", "step 2")
    engine.now += 1
    assert follower(engine)().history.line == "RuntimeError: CUDA out of memory"


def test_it_is_looked_for_further_up_where_the_next_run_says_much(
    engine: SimulatedEngine,
) -> None:
    engine.create()
    engine.start("RuntimeError: CUDA out of memory")
    engine.now += 5
    engine.end(1)
    engine.now += 1
    engine.start(*[f"step {number}" for number in range(500)])
    engine.now += 1
    assert follower(engine)().history.line == "RuntimeError: CUDA out of memory"
    assert engine.log_questions == [50, 2000]


def test_a_start_without_output_does_not_show_the_output_of_the_start_before(
    engine: SimulatedEngine,
) -> None:
    engine.create()
    follow = follower(engine)
    engine.loop(1)
    assert follow().history.line == FATAL
    engine.start()
    engine.now += 5
    engine.end(137)
    engine.now += 2
    assert (follow().history.line, engine.log_questions[-1]) == ("", 50)


def test_the_log_is_read_once_for_each_end(engine: SimulatedEngine) -> None:
    engine.create()
    follow = follower(engine)
    engine.loop(2)
    look_often(follow, engine, 20)
    assert len(engine.log_questions) == 1


def test_an_engine_that_is_away_is_a_state_and_the_past_stays_known(
    engine: SimulatedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    follow = follower(engine)
    engine.create()
    engine.loop(3)
    known = follow().history
    with caplog.at_level(logging.INFO):
        engine.error = DockerError("refused", "nobody listens")
        away = follow()
        assert follow() == away
        engine.error = None
        follow()
    assert away == ContainerObservation(known, engine="refused")
    assert [record.message for record in caplog.records] == [
        "docker engine cannot be asked",
        "docker engine answers",
    ]


def test_a_restart_of_the_engine_is_one_start(engine: SimulatedEngine) -> None:
    follow = follower(engine)
    engine.create()
    engine.start()
    engine.now += 100
    follow()
    engine.error = DockerError("refused", "nobody listens")
    engine.end(137, restarts=False)
    engine.now += 3
    follow()
    engine.forget()
    engine.start()  # it does so on its own, and restarts its count
    engine.now += 3
    engine.error = None
    sighting = follow()
    assert (sighting.history.starts_total, recent(sighting, engine)) == (2, 2)
    assert follow().history.starts_total == 2


def test_three_restarts_over_a_day_are_no_loop_though_nobody_looked(
    engine: SimulatedEngine, tmp_path: Path
) -> None:
    engine.create()
    engine.start()
    engine.now += 10
    follower(engine, tmp_path / "trainer.json")()
    for _ in range(3):
        engine.now += 8 * 3600
        engine.end(1)
        engine.now += 1
        engine.start()
    engine.forget()
    engine.now += 5
    sighting = follower(engine, tmp_path / "trainer.json")()
    assert sighting.history.starts_total == 4
    assert recent(sighting, engine) == 1


def test_a_clock_that_is_set_back_hides_no_start(engine: SimulatedEngine) -> None:
    follow = follower(engine)
    engine.create()
    engine.start()
    engine.now += 10
    follow()
    engine.now -= 3600
    engine.end(1)
    engine.now += 1
    engine.start()
    engine.now += 5
    assert follow().history.starts_total == 2
    engine.end(1)
    engine.now += 1
    engine.start()
    engine.now += 5
    sighting = follow()
    assert (sighting.history.starts_total, sighting.history.exit_code) == (3, 1)


def test_the_state_is_not_written_without_changes(engine: SimulatedEngine, tmp_path: Path) -> None:
    file = tmp_path / "trainer.json"
    follow = follower(engine, file)
    engine.create()
    engine.start()
    engine.now += 5
    follow()
    inode = file.stat().st_ino
    look_often(follow, engine, 50)
    assert file.stat().st_ino == inode
    look_often(follow, engine, 20)
    assert file.stat().st_ino != inode
