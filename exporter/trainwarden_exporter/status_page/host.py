"""Status page: workers and host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwarden_exporter.frameworks.error_lines import as_shown, shown_end
from trainwarden_exporter.processes.announcements import Announcement, describe_end
from trainwarden_exporter.processes.left_behind import count_left_behind
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_duration, made_all_steps
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.series import Series, Tone

NEAR = 0.9
"""Share of a limit from which on a value is near the limit; the shipped rules use the same."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker. Sizes in bytes, times in seconds; None where unknown or not set."""

    run: str
    name: str
    role: str
    processes: float
    expected: float
    finished: bool = False
    memory: float | None = None
    """Memory that counts towards the limit."""
    memory_limit: float | None = None
    age: float | None = None
    age_limit: float | None = None
    cpu: float | None = None
    restarts: float | None = None
    unconfirmed: float = 0
    """Absent processes without a sign of a failure."""
    failure: str = ""
    """How an announced worker that does not run failed;"""
    error: str = ""
    """the line with which it did, such as `ValueError: no such dataset`;"""
    start_command: str = ""
    """and what starts it again, for a shell."""
    restarts_itself: bool = False
    """Whether its `trainwarden run` is about to start it again."""
    left_behind: int = 0
    """How many processes of an announced worker that has finished go on, unwatched."""
    perhaps_failed: str = ""
    """The error that an announced worker has printed last, which has finished with steps left."""
    own_restarts: str = ""
    """How often its `trainwarden run` has started it again itself, and why last."""

    @property
    def memory_tone(self) -> Tone:
        if self.memory is None or not self.memory_limit:
            return "good"
        share = self.memory / self.memory_limit
        return "bad" if share > 1 else "warn" if share > NEAR else "good"

    @property
    def state(self) -> str:
        if self.finished:
            ended = "ended, perhaps failed" if self.perhaps_failed else "finished"
            return "ended, and goes on unwatched" if self.left_behind else ended
        if self.failure:
            return f"failed: {self.failure}"
        if self.processes < self.expected:
            return (
                f"{self.expected - self.processes:.0f} missing" if self.processes else "not running"
            )
        if self.memory_tone != "good":
            return "over its limit" if self.memory_tone == "bad" else "near its limit"
        return "old" if self._old else "up"

    @property
    def tone(self) -> Tone:
        if self.finished:
            return "warn" if self.left_behind or self.perhaps_failed else "quiet"
        if self.processes < self.expected:
            return "warn" if self.processes + self.unconfirmed >= self.expected else "bad"
        return "warn" if self.memory_tone == "good" and self._old else self.memory_tone

    @property
    def _old(self) -> bool:
        return self.age is not None and self.age_limit is not None and self.age > self.age_limit


@dataclass(frozen=True, slots=True)
class HostView:
    """The machine or its container. Sizes in bytes; None where unknown."""

    total: float | None = None
    available: float | None = None
    floor: float | None = None
    swap_total: float | None = None
    swap_free: float | None = None
    load: float | None = None
    cpus: float | None = None
    oom_kills: float | None = None
    booted: float | None = None

    @property
    def tone(self) -> Tone:
        if self.available is None or self.floor is None:
            return "good"
        return "bad" if self.available < self.floor else "good"


def failures(outcomes: Iterable[Outcome]) -> Mapping[WorkerKey, str]:
    """Returns how the announced workers that do not run have failed."""
    return {one.key: one.failure for one in _announced(outcomes) if one.failure}


def _announced(outcomes: Iterable[Outcome]) -> Iterator[Announcement]:
    artifacts = (artifact for outcome in outcomes for artifact in outcome.artifacts)
    return (one for one in artifacts if isinstance(one, Announcement))


def build_worker_views(outcomes: Iterable[Outcome], *, now: float) -> tuple[WorkerView, ...]:
    """Returns the workers in `outcomes` in configuration order; `now` is a Unix time."""
    outcomes = tuple(outcomes)
    series, announced = Series(outcomes, now), {one.key: one for one in _announced(outcomes)}
    return tuple(
        WorkerView(
            run=key[0],
            name=key[1],
            role=key[2],
            processes=series.of("worker_processes", *key) or 0,
            expected=expected,
            finished=series.of("worker_finished", *key) == 1,
            memory=series.of("worker_memory_bytes", *key),
            memory_limit=series.of("worker_memory_limit_bytes", *key),
            age=series.age("worker_start_timestamp_seconds", *key),
            age_limit=series.of("worker_age_limit_seconds", *key),
            cpu=series.of("worker_cpu_seconds_total", *key),
            unconfirmed=sum(
                count
                for labels, count in series.all("worker_unconfirmed_missing_processes").items()
                if labels[:3] == key
            ),
            **_announced_facts(
                announced.get(WorkerKey(key[0], key[1])),
                series.of("worker_restarts_total", *key),
                now,
                steps_left=not made_all_steps(
                    series.of("training_step", key[0]), series.of("training_total_steps", key[0])
                ),
            ),
        )
        for key, expected in series.all("worker_expected_processes").items()
    )


def _announced_facts(
    found: Announcement | None, restarts: float | None, now: float, *, steps_left: bool
) -> dict[str, Any]:
    """`restarts`: how many the exporter has seen since its own start.

    `steps_left`: whether it is not known that the run has made its steps.
    """
    if found is None:
        return {"restarts": restarts}
    facts: dict[str, Any] = {"own_restarts": _own_restarts(found.own_restarts, now)}
    facts |= {"restarts": max(restarts or 0, found.starts - 1)}
    facts |= {"left_behind": count_left_behind([found])}
    if steps_left and found.state == "finished" and found.final_error:
        error = as_shown(found.final_error)
        facts |= {"perhaps_failed": error, "start_command": found.start_command}
    if found.failure:
        facts |= {
            "failure": found.failure,
            "error": "; ".join(filter(None, (shown_end(found.last_lines), redact(found.left)))),
            "start_command": found.start_command,
            "restarts_itself": found.restarts_itself,
        }
    return facts


def _own_restarts(restarts: Sequence[tuple[float, int]], now: float) -> str:
    if not restarts:
        return ""
    at, status = restarts[-1]
    last = f"the last {format_duration(round(max(0.0, now - at)))} ago after {describe_end(status)}"
    return f"{len(restarts)} by --restart on-failure, {last}"


def build_host_view(outcomes: Iterable[Outcome]) -> HostView:
    """Returns the host in `outcomes`."""
    series = Series(outcomes)
    return HostView(
        total=series.of("memory_effective_total_bytes"),
        available=series.of("memory_effective_available_bytes"),
        floor=series.of("memory_available_floor_bytes"),
        swap_total=series.of("memory_swap_total_bytes"),
        swap_free=series.of("memory_swap_free_bytes"),
        load=series.of("host_load_average", "1m"),
        cpus=series.of("host_cpus"),
        # The host counter includes kills in the cgroup.
        oom_kills=max(series.all("memory_oom_kills_total").values(), default=None),
        booted=series.of("host_boot_timestamp_seconds"),
    )
