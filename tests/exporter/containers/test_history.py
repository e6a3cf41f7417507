"""What is remembered of a container: from what an engine tells, and from what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainwarden_exporter.containers.docker_api import Event, Inspection
from trainwarden_exporter.containers.history import ContainerHistory, missed_starts

NOW = 100_000.0


def event(action: str, timestamp: float, exit_code: int | None = None) -> Event:
    return Event(action, "abc", "trainer", timestamp, exit_code)


def seen(**more: Any) -> Inspection:
    """A container that was created and started a day ago, and runs."""
    plain = Inspection(
        id="abc",
        state="running",
        created=NOW - 86_400,
        started=NOW - 86_400,
        finished=None,
        exit_code=None,
        restart_count=0,
        oom_killed=False,
        health=None,
        tty=False,
    )
    return replace(plain, **more)


class TestEvents:
    def test_are_counted_once(self) -> None:
        reported = [event("start", NOW - 20), event("die", NOW - 18, 1), event("start", NOW - 3)]
        history = ContainerHistory().add_events(reported, NOW)
        assert history.add_events(reported, NOW) == history
        assert (history.starts, history.starts_total) == ((NOW - 20, NOW - 3), 2)
        assert (history.exit_code, history.exit_timestamp) == (1, NOW - 18)

    def test_may_come_in_any_order(self) -> None:
        history = ContainerHistory().add_events(
            [event("die", NOW - 2, 3), event("die", NOW - 9, 1)], NOW
        )
        assert (history.exit_code, history.exit_timestamp) == (3, NOW - 2)

    def test_tell_of_kills(self) -> None:
        history = ContainerHistory().add_events(
            [event("oom", NOW - 2), event("die", NOW - 2 + 0.01, 137)], NOW
        )
        assert (history.oom_kills, history.exit_code) == (1, 137)

    def test_that_are_old_are_counted_and_not_recent(self) -> None:
        history = ContainerHistory().add_events(
            [event("start", NOW - 700), event("start", NOW)], NOW
        )
        assert (history.starts, history.starts_total) == ((NOW,), 2)


class TestStartsThatNobodySaw:
    def test_are_none_where_the_events_tell_of_all(self) -> None:
        looping = seen(restart_count=2, created=NOW - 40, started=NOW - 5)
        reported = [NOW - 39, NOW - 22, NOW - 5]
        assert missed_starts(ContainerHistory(), looping, reported, NOW) == ()

    def test_are_spread_over_the_life_of_a_container_seen_for_the_first_time(self) -> None:
        old = seen(restart_count=3, started=NOW - 3600)
        assert missed_starts(ContainerHistory(), old, [], NOW) == pytest.approx(
            [NOW - 3600 - number * 82_800 / 4 for number in range(4)]
        )

    def test_come_before_the_known_ones(self) -> None:
        looping = seen(restart_count=3, created=NOW - 90, started=NOW - 10)
        assert missed_starts(
            ContainerHistory(), looping, [NOW - 30, NOW - 10], NOW
        ) == pytest.approx([NOW - 50, NOW - 70])

    def test_are_those_since_the_last_look(self) -> None:
        before = ContainerHistory(id="abc", counted=5, looked=NOW - 100)
        looping = seen(restart_count=6, started=NOW - 10)
        assert missed_starts(before, looping, [], NOW) == pytest.approx([NOW - 10, NOW - 55])

    def test_are_all_of_a_container_that_took_its_name(self) -> None:
        before = ContainerHistory(id="other", counted=5, looked=NOW - 100)
        young = seen(restart_count=1, created=NOW - 50, started=NOW - 10)
        assert missed_starts(before, young, [], NOW) == pytest.approx([NOW - 10, NOW - 30])

    def test_by_hand_show_in_the_start_time_alone(self) -> None:
        before = ContainerHistory(id="abc", counted=1, looked=NOW - 100)
        assert missed_starts(before, seen(started=NOW - 40), [], NOW) == (NOW - 40,)
        assert missed_starts(before, seen(started=NOW - 40), [NOW - 40], NOW) == ()
        assert missed_starts(before, seen(), [], NOW) == ()

    def test_are_counted_again_where_the_engine_does(self) -> None:
        before = ContainerHistory(id="abc", counted=9, looked=NOW - 100)
        by_hand = seen(restart_count=1, started=NOW - 10, created=NOW - 30)
        assert len(missed_starts(before, by_hand, [], NOW)) == 2

    def test_are_none_for_a_container_that_has_just_begun(self) -> None:
        """Its event comes a moment later, and then it is counted."""
        young = seen(created=NOW - 0.4, started=NOW - 0.2)
        assert missed_starts(ContainerHistory(), young, [], NOW) == ()
        assert missed_starts(ContainerHistory(), young, [NOW - 0.19], NOW) == ()

    def test_are_none_where_there_was_none(self) -> None:
        assert missed_starts(ContainerHistory(), seen(state="created", started=None), [], NOW) == ()

    def test_do_not_count_a_restart_that_is_due(self) -> None:
        waiting = seen(state="restarting", restart_count=1, created=NOW - 20, started=NOW - 19)
        assert missed_starts(ContainerHistory(), waiting, [NOW - 19], NOW) == ()


class TestAnEndThatNobodySaw:
    def catch_up(self, history: ContainerHistory, inspection: Inspection) -> ContainerHistory:
        return history.catch_up(inspection, before=history, reported=[], asked_at=NOW)

    def test_is_reported_with_its_code_while_nothing_runs(self) -> None:
        ended = seen(state="exited", finished=NOW - 60, exit_code=3)
        history = self.catch_up(ContainerHistory(), ended)
        assert (history.exit_code, history.exit_timestamp) == (3, NOW - 60)

    def test_is_reported_without_once_it_runs_again(self) -> None:
        history = self.catch_up(
            ContainerHistory(exit_code=3, exit_timestamp=1.0), seen(finished=NOW - 60)
        )
        assert (history.exit_code, history.exit_timestamp) == (None, NOW - 60)

    def test_keeps_the_code_of_the_end_that_is_known(self) -> None:
        known = ContainerHistory(
            id="abc", counted=1, looked=NOW, exit_code=3, exit_timestamp=NOW - 60 + 0.02
        )
        assert self.catch_up(known, seen(finished=NOW - 60)) == known

    def test_counts_the_kill_that_ended_it(self) -> None:
        killed = seen(state="exited", finished=NOW - 60, exit_code=137, oom_killed=True)
        history = self.catch_up(ContainerHistory(), killed)
        assert history.oom_kills == 1
        assert self.catch_up(history, killed).oom_kills == 1

    def test_is_left_to_its_event_where_it_has_only_just_come(self) -> None:
        history = self.catch_up(
            ContainerHistory(), seen(state="exited", finished=NOW - 0.1, exit_code=3)
        )
        assert history.exit_timestamp is None
