"""Metric families as workers and a host."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.runtime.responsibility import NOBODY, YOU
from trainwarden_exporter.scrape.collector import Family
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.headline import summarize
from trainwarden_exporter.status_page.host import (
    HostView,
    WorkerView,
    build_host_view,
    build_worker_views,
)
from trainwarden_exporter.status_page.problems import Problem, worker_problems
from trainwarden_exporter.status_page.remediator_client import FiringAlert, RemediatorStatus

METRICS = {metric.name: metric for metric in declared_metrics()}
KEY = ("demo", "rollout-0", "rollout")


def family(name: str, *samples: tuple[tuple[str, ...], float]) -> Family:
    made = METRICS[f"trainwarden_{name}"].family()
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


def test_restarts_by_the_run_itself_are_shown() -> None:
    one = Announcement(run=KEY[0], worker=KEY[1], pid=7, own_restarts=((900.0, 256), (985.0, 9)))
    outcome = Outcome(
        "workers", 0.1, (family("worker_expected_processes", (KEY, 1)),), artifacts=(one,)
    )
    (view,) = build_worker_views([outcome], now=1000)
    assert view.own_restarts == "2 by --restart on-failure, the last 15 s ago after SIGKILL"
    assert view.failure == ""


@pytest.mark.parametrize(("seen", "restarts"), [(None, 2), (0, 2), (5, 5)])
def test_restarts_from_before_the_exporter_was_started_count(
    seen: float | None, restarts: float
) -> None:
    one = Announcement(run=KEY[0], worker=KEY[1], pid=7, starts=3)
    families = [family("worker_expected_processes", (KEY, 1))]
    if seen is not None:
        families.append(family("worker_restarts_total", (KEY, seen)))
    outcome = Outcome("workers", 0.1, tuple(families), artifacts=(one,))
    (view,) = build_worker_views([outcome], now=1000)
    assert view.restarts == restarts


def test_a_command_that_has_failed_shows_its_error_and_what_starts_it_again() -> None:
    one = Announcement(
        run=KEY[0],
        worker=KEY[1],
        role="rollout",
        restart="on-request",
        pid=7,
        state="failed",
        exits=((7, 70, 256),),
        last_lines=("Traceback (most recent call last):", "ValueError: token=abcdefgh1234\x1b."),
        argv=("python", "roll.py", "--lr", "1e-5"),
        options=("--name", KEY[0], "--worker", "rollout-0"),
        cwd="/srv/a b",
    )
    samples = (family("worker_expected_processes", (KEY, 1)),)
    views = build_worker_views([Outcome("workers", 0.1, samples, artifacts=(one,))], now=1000)
    (problem,) = worker_problems(views)
    assert problem.clause == (
        "demo/rollout-0 has failed (exit status 1): ValueError: token=[redacted]"
    )
    other = one.model_copy(update={"last_lines": ("loading", "no such key")})
    (known,) = worker_problems(
        build_worker_views([Outcome("workers", 0.1, samples, artifacts=(other,))], now=1000)
    )
    assert known.clause == "demo/rollout-0 has failed (exit status 1): last line: no such key"
    assert problem.start_command == (
        f"cd '/srv/a b' && trainwarden run --name {KEY[0]} --worker rollout-0 "
        "--detach -- python roll.py --lr 1e-5"
    )
    assert problem.dismissal == f"`trainwarden stop {KEY[0]}` dismisses it."
    trainer = (KEY[0], "trainer", "trainer")  # is not to be stopped
    samples = (family("worker_expected_processes", (KEY, 1), (trainer, 1)),)
    views = build_worker_views([Outcome("workers", 0.1, samples, artifacts=(one,))], now=1000)
    shown = [one.dismissal for one in worker_problems(views) if one.failed]
    assert shown == [f"`trainwarden stop {KEY[0]} --worker rollout-0` dismisses it."]


@pytest.mark.parametrize(("step", "failed"), [(35, True), (400, False)])
def test_a_command_that_ended_with_an_error_and_steps_left_is_yours(
    step: float, *, failed: bool
) -> None:
    command = {"argv": ("sh", "a.sh"), "options": (), "cwd": "/w", "final_error": "KeyError: 'a'."}
    about = {"run": KEY[0], "worker": KEY[1], "pid": 7, "state": "finished"}
    one = Announcement.model_validate({**about, **command})
    samples = (
        family("worker_expected_processes", (KEY, 1)),
        family("worker_finished", (KEY, 1)),
        family("training_step", ((KEY[0],), step)),
        family("training_total_steps", ((KEY[0],), 400)),
    )
    outcome = Outcome("workers", 0.1, samples, artifacts=(one,))
    (view,) = build_worker_views([outcome], now=1000)
    shown = [(found.who, found.clause, found.how, found.gone) for found in worker_problems([view])]
    named = "demo/rollout-0 has ended with exit status 0, and perhaps failed: KeyError: 'a'"
    typed = "When its cause is mended: `cd /w && trainwarden run -- sh a.sh`."
    how = f"Its log shows whether. {typed} `trainwarden stop demo` dismisses it."
    assert shown == [(YOU, named, how, False)] * failed
    assert (view.state, view.tone) == (
        ("ended, perhaps failed", "warn") if failed else ("finished", "quiet")
    )
    again = one.model_copy(update={"state": "running"})
    (view,) = build_worker_views([replace(outcome, artifacts=(again,))], now=1000)
    assert not view.perhaps_failed


def test_a_command_that_goes_on_unwatched_is_not_shown_as_finished() -> None:
    process = read_process(os.getpid())
    assert process is not None
    own = tuple(process.identity)
    one = Announcement(run=KEY[0], worker=KEY[1], pid=7, state="finished", goes_on=(own, (1, 1)))
    samples = (family("worker_expected_processes", (KEY, 1)),)
    outcome = Outcome("workers", 0.1, samples, artifacts=(one,))
    (view,) = build_worker_views([outcome], now=1000)
    assert view.left_behind == 1
    view = replace(view, finished=True)
    assert (view.state, view.tone) == ("ended, and goes on unwatched", "warn")
    (problem,) = worker_problems([view])
    assert problem.clause == (
        "demo/rollout-0 is not watched: its command has ended, and 1 process of it goes on, which"
        " nobody watches: start it without `nohup` and `&`"
    )
    assert (problem.gone, problem.who) == (False, YOU)
    (view,) = build_worker_views([replace(outcome, artifacts=())], now=1000)
    assert list(worker_problems([replace(view, finished=True)])) == []


def test_a_run_that_is_about_to_restart_itself_needs_nobody() -> None:
    one = Announcement(
        run=KEY[0],
        worker=KEY[1],
        pid=7,
        state="failed",
        exits=((7, 70, 9),),
        own_restarts=((985.5, 9),),
        ended_at=985.5,
    )
    samples = (
        family("worker_expected_processes", (KEY, 1)),
        family("worker_processes", (KEY, 0)),
    )
    views = build_worker_views([Outcome("workers", 0.1, samples, artifacts=(one,))], now=1000)
    (problem,) = worker_problems(views)
    assert (problem.who, problem.clause) == (NOBODY, "demo/rollout-0 has failed (SIGKILL)")
    count = "1 by --restart on-failure, the last 14 s ago after SIGKILL"
    assert problem.how == f"Its trainwarden run starts it again (restarts: {count})."


def test_who_acts_on_a_run_that_restarts_itself_is_as_its_alert_says() -> None:
    restarts = "Its trainwarden run starts it again (restarts: 2)."
    problem = Problem(
        "bad", "r/t has failed", "r", "t", gone=True, failed=True, who=NOBODY, how=restarts
    )
    loop = FiringAlert(
        alert="TrainingWorkerRestartLoop",
        run="r",
        worker="t",
        since=0,
        tone="bad",
        who_acts=YOU,
        handling="mend its cause",
    )
    remediator = RemediatorStatus(
        mode="act", tone="bad", verdict="x", open_alerts=0, alerts=(), actions=(), firing=(loop,)
    )
    found = summarize([problem], [], remediator)
    assert (found.who, found.how) == (YOU, f"{restarts} Mend its cause.")
    assert [one.who for one in found.problems] == [YOU]
    ended = loop.model_copy(update={"handling": "the remediator may not restart it"})
    found = summarize([problem], [], remediator.model_copy(update={"firing": (ended,)}))
    assert (found.who, found.how) == (
        YOU,
        "Nobody starts it again: its trainwarden run has ended.",
    )
    for calm in ((), (loop.model_copy(update={"run": "other"}),)):
        found = summarize([problem], [], remediator.model_copy(update={"firing": calm}))
        assert found.problems[-1].who == NOBODY


def test_a_worker_is_put_together_from_its_series() -> None:
    values = {
        "processes": 1,
        "expected_processes": 2,
        "memory_bytes": 100,
        "memory_limit_bytes": 200,
        "start_timestamp_seconds": 900,
        "age_limit_seconds": 3600,
        "cpu_seconds_total": 12,
        "restarts_total": 3,
        "finished": 0,
    }
    outcome = Outcome(
        "workers",
        0.1,
        tuple(family(f"worker_{name}", (KEY, value)) for name, value in values.items()),
    )

    assert build_worker_views([outcome], now=1000) == (
        WorkerView(
            *KEY,
            processes=1,
            expected=2,
            memory=100,
            memory_limit=200,
            age=100,
            age_limit=3600,
            cpu=12,
            restarts=3,
        ),
    )


def test_what_a_worker_lacks_is_not_known() -> None:
    outcome = Outcome("workers", 0.1, (family("worker_expected_processes", (KEY, 1)),))
    (worker,) = build_worker_views([outcome], now=1000)
    assert (worker.memory, worker.memory_limit, worker.age, worker.cpu) == (None,) * 4


def sighting(
    *,
    processes: float = 1,
    expected: float = 1,
    finished: bool = False,
    memory: float | None = 50,
    memory_limit: float | None = 100,
    age: float | None = 10,
    age_limit: float | None = 100,
    unconfirmed: float = 0,
) -> WorkerView:
    return WorkerView(
        *KEY,
        processes=processes,
        expected=expected,
        finished=finished,
        memory=memory,
        memory_limit=memory_limit,
        age=age,
        age_limit=age_limit,
        unconfirmed=unconfirmed,
    )


@pytest.mark.parametrize(
    ("worker", "state", "tone"),
    [
        (sighting(), "up", "good"),
        (sighting(memory_limit=None, age_limit=None), "up", "good"),
        (sighting(memory=None, age=None), "up", "good"),
        (sighting(processes=0), "not running", "bad"),
        (sighting(processes=0, unconfirmed=1), "not running", "warn"),
        (sighting(processes=2, expected=5), "3 missing", "bad"),
        (sighting(processes=0, finished=True), "finished", "quiet"),
        (sighting(processes=0, expected=0), "up", "good"),
        (sighting(memory=90), "up", "good"),
        (sighting(memory=91), "near its limit", "warn"),
        (sighting(memory=101), "over its limit", "bad"),
        (sighting(age=101), "old", "warn"),
        (sighting(age=101, memory=101), "over its limit", "bad"),
    ],
)
def test_how_a_worker_is_fits_in_two_words(worker: WorkerView, state: str, tone: str) -> None:
    assert (worker.state, worker.tone) == (state, tone)


def test_the_host_is_put_together_from_its_series() -> None:
    outcome = Outcome(
        "host",
        0.1,
        (
            family("memory_effective_total_bytes", ((), 100)),
            family("memory_effective_available_bytes", ((), 60)),
            family("memory_available_floor_bytes", ((), 8)),
            family("host_load_average", (("1m",), 0.5), (("5m",), 0.4)),
            family("memory_oom_kills_total", (("host",), 3), (("cgroup",), 2)),
        ),
    )
    assert build_host_view([outcome]) == HostView(
        total=100, available=60, floor=8, load=0.5, oom_kills=3
    )


def test_a_host_below_its_floor_is_in_trouble() -> None:
    assert HostView(available=7, floor=8).tone == "bad"
    assert HostView(available=8, floor=8).tone == "good"
    assert HostView().tone == "good"


def test_nothing_collected_is_nothing_seen() -> None:
    assert build_worker_views([], now=0) == ()
    assert build_host_view([]) == HostView()
