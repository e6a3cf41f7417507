"""Reads what an exporter's page shows, as far as decisions rest on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.sight import (
    BrakeSight,
    DiskSight,
    RunSight,
    ServerSight,
    Sight,
    WorkerSight,
)

PREFIX = "trainwarden_"

BRAKE = "brake"
"""What the name of a pattern holds whose lines tell that a brake was put on."""

_Sample = tuple[Mapping[str, str], float]


class _Page:
    """The samples of a page, by metric."""

    def __init__(self, body: bytes) -> None:
        self._samples: dict[str, list[_Sample]] = {}
        self._sorted: dict[tuple[str, ...], dict[tuple[str, ...], list[_Sample]]] = {}
        try:
            for family in text_string_to_metric_families(body.decode()):
                for sample in family.samples:
                    if sample.name.startswith(PREFIX):
                        name = sample.name.removeprefix(PREFIX)
                        self._samples.setdefault(name, []).append((sample.labels, sample.value))
        except Exception as error:  # the parser stumbles over garbage in ways of its own
            raise UnknownError(f"the exporter's page cannot be read: {error}") from error

    def all(self, name: str, **labels: str) -> Sequence[_Sample]:
        """The samples of a metric that have these labels."""
        # Sorted once for each set of labels: there may be hundreds of servers.
        places = self._sorted.get((name, *labels))
        if places is None:
            places = self._sorted[name, *labels] = {}
            for sample in self._samples.get(name, ()):
                place = tuple(sample[0].get(label, "") for label in labels)
                places.setdefault(place, []).append(sample)
        return places.get(tuple(labels.values()), ())

    def maybe(self, name: str, **labels: str) -> float | None:
        return next((value for _, value in self.all(name, **labels)), None)

    def marked(self, name: str, label: str, **labels: str) -> str:
        """Of samples of which one is 1 and the others are 0, the value that `label` has in it."""
        return next((own.get(label, "") for own, value in self.all(name, **labels) if value), "")

    def values(self, name: str, label: str) -> list[str]:
        """All values that `label` has, in the order of the page."""
        return list(dict.fromkeys(own.get(label, "") for own, _ in self.all(name)))


def parse_sight(body: bytes) -> Sight:
    """What an exporter's page shows.

    Raises UnknownError when the page cannot be read, or a collector that must speak has failed:
    a half-blind look is no ground to act on. What other collectors do not show is left out.
    """
    page = _Page(body)
    for collector in ("host", "workers"):
        if page.maybe("collector_success", collector=collector) != 1:
            raise UnknownError(f"the exporter's {collector} collector does not report success")

    def box(name: str) -> float:
        if (value := page.maybe(f"memory_{name}_bytes")) is None:
            raise UnknownError(f"the exporter shows no memory {name}")
        return value

    return Sight(
        workers={key: _worker(key, page) for key in _worker_keys(page)},
        memory_available_bytes=box("effective_available"),
        memory_floor_bytes=box("available_floor"),
        gpu_orphans=_orphans(page),
        servers={run: tuple(_servers(page, run)) for run in page.values("inference_info", "run")},
        runs={run: _run(page, run) for run in _runs(page)},
        disks=tuple(_disk(page, path) for path in _disks(page)),
        booted_at=page.maybe("host_boot_timestamp_seconds"),
        collectors_failing=_failing(page),
        saves_unknown=_saves_unknown(page),
        brakes={key: brake for key in _braking(page) if (brake := _brake(page, key)) is not None},
        memory_stalled={
            (labels.get("scope", ""), labels.get("kind", "")): value
            for labels, value in page.all("memory_pressure_stalled_seconds_total")
        },
    )


def _failing(page: _Page) -> float:
    """The share of collectors that fail."""
    told = [value for _, value in page.all("collector_success")]
    return sum(value == 0 for value in told) / len(told) if told else 0.0


def _saves_unknown(page: _Page) -> str:
    failing = page.maybe("collector_success", collector="checkpoints") == 0
    return "the exporter's checkpoints collector fails" if failing else ""


def _orphans(page: _Page) -> float | None:
    if page.maybe("collector_success", collector="gpu") != 1:
        return None
    found = [value for _, value in page.all("gpu_orphan_holders")]
    return sum(found) if found else None


def _worker_keys(page: _Page) -> Iterator[WorkerKey]:
    for labels, _ in page.all("worker_processes"):
        yield WorkerKey(labels.get("run", ""), labels.get("worker", ""))


def _worker(key: WorkerKey, page: _Page) -> WorkerSight:
    def maybe(name: str) -> float | None:
        return page.maybe(f"worker_{name}", run=key.run, worker=key.worker)

    def needed(name: str) -> float:
        if (value := maybe(name)) is None:
            raise UnknownError(f"the exporter shows no {name} of worker {key.worker}")
        return value

    return WorkerSight(
        processes=needed("processes"),
        expected=needed("expected_processes"),
        resident_bytes=needed("resident_bytes"),
        finished=bool(maybe("finished")),
        started_at=maybe("start_timestamp_seconds"),
        memory_limit_bytes=maybe("memory_limit_bytes"),
        age_limit_seconds=maybe("age_limit_seconds"),
        trials=maybe("trials"),
        trials_limit=maybe("trials_limit"),
    )


def _servers(page: _Page, run: str) -> Iterator[ServerSight]:
    for labels, _ in page.all("inference_info", run=run):
        which = {"run": run, "server": labels.get("server", "")}
        up = page.maybe("inference_up", **which)
        if up is None:
            continue
        answered = page.maybe("inference_deep_probe_success", **which)
        yield ServerSight(
            name=which["server"],
            worker=labels.get("worker", ""),
            role=labels.get("role", ""),
            up=bool(up),
            reason=page.marked("inference_reason", "reason", **which),
            since=page.maybe("inference_state_timestamp_seconds", **which),
            answered=None if answered is None else bool(answered),
            asked_at=page.maybe("inference_deep_probe_timestamp_seconds", **which),
            failures=page.maybe("inference_deep_probe_failures", **which) or 0.0,
            worked_at=page.maybe("inference_progress_timestamp_seconds", **which),
            start_grace=page.maybe("inference_start_grace_seconds", **which) or 0.0,
            seen_at=page.maybe("inference_seen_timestamp_seconds", **which),
        )


_OF_A_RUN = ("training_step", "training_stall_limit_seconds", "checkpoint_complete")


def _runs(page: _Page) -> list[str]:
    return list(dict.fromkeys(run for name in _OF_A_RUN for run in page.values(name, "run")))


def _run(page: _Page, run: str) -> RunSight:
    def training(name: str) -> float | None:
        return page.maybe(f"training_{name}", run=run)

    def checkpoints(name: str) -> list[float]:
        return [value for _, value in page.all(f"checkpoint_{name}", run=run)]

    complete, matches = checkpoints("complete"), checkpoints("recovery_matches")
    return RunSight(
        step=training("step"),
        last_step_at=training("last_step_timestamp_seconds"),
        progress_at=training("progress_timestamp_seconds"),
        stall_limit=training("stall_limit_seconds"),
        phase=page.marked("training_phase", "phase", run=run),
        finished=bool(training("finished")),
        resume_step=training("resume_step"),
        first_step=training("first_step_after_resume"),
        checkpoint=max(checkpoints("step"), default=None),
        checkpoint_at=max(checkpoints("timestamp_seconds"), default=None),
        checkpoints=sum(complete) if complete else None,
        checkpoints_seen_at=min(checkpoints("seen_timestamp_seconds"), default=None),
        saving=any(checkpoints("saving")),
        recovery_matches=all(matches) if matches else None,
    )


_OF_A_DISK = ("disk_up", "disk_free_bytes")


def _disks(page: _Page) -> list[str]:
    return list(dict.fromkeys(path for name in _OF_A_DISK for path in page.values(name, "path")))


def _disk(page: _Page, path: str) -> DiskSight:
    def maybe(name: str) -> float | None:
        return page.maybe(f"disk_{name}", path=path)

    return DiskSight(
        path=path,
        up=maybe("up") != 0,
        size=maybe("size_bytes"),
        free=maybe("free_bytes"),
        inodes=maybe("inodes"),
        free_inodes=maybe("free_inodes"),
        read_only=bool(maybe("read_only")),
        seen_at=maybe("seen_timestamp_seconds"),
        runs=frozenset(
            labels.get("run", "") for labels, _ in page.all("disk_checkpoints_left", path=path)
        ),
    )


def _braking(page: _Page) -> list[WorkerKey]:
    """The workers whose logs are followed."""
    keys = (
        WorkerKey(labels.get("run", ""), labels.get("worker", ""))
        for labels, _ in page.all("log_info")
    )
    return [key for key in dict.fromkeys(keys) if key.worker]


def _brake(page: _Page, key: WorkerKey) -> BrakeSight | None:
    """The longest streak of a brake in any of its logs; None where there is none."""
    found = []
    for log, _ in page.all("log_info", run=key.run, worker=key.worker):
        which = {"run": key.run, "log": log.get("log", "")}
        for labels, streak in page.all("log_match_streak", **which):
            pattern = labels.get("pattern", "")
            last = page.maybe("log_last_match_timestamp_seconds", **which, pattern=pattern)
            if BRAKE in pattern and last is not None:
                found.append(BrakeSight(streak, last))
    return max(found, key=lambda brake: brake.streak, default=None)
