"""Collects evidence from all sources concurrently, with a timeout.

It never prevents an action and delays it only briefly: evidence that is not available in time is
listed as missing.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.evidence.sources import OF_HOST, Source, sources
from trainwarden_remediator.evidence.triggers import EvidenceTrigger
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import Observer, Snapshot

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
"""Timeout of a whole collection, in seconds."""

Sources = Callable[[EvidenceTrigger, Setup], Mapping[str, Source]]

_Question = tuple[object, ...]
"""The name of a source and, unless it is of the whole host, the run and the target."""


class _Pending(NamedTuple):
    answer: asyncio.Future[Any]
    asked_at: float
    """Time of the event loop, in seconds."""


class EvidenceCollector:
    """Collects evidence and stores it in the journal.

    A query that is in progress answers for all who ask the same. A source that has not answered
    within the timeout is not queried again until it does.
    """

    def __init__(
        self,
        journal: Journal,
        observer: Callable[[], Observer],
        *,
        thread_factory: Callable[[str], SerialThread] = SerialThread,
        sources: Sources = sources,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._journal = journal
        self._observer = observer
        self._thread_factory = thread_factory
        self._sources = sources
        self._timeout = timeout
        self._pending: dict[_Question, _Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def collect(self, trigger: EvidenceTrigger, setup: Setup) -> None:
        """Collects evidence and returns after the timeout at the latest; raises no errors."""
        task = asyncio.create_task(self._collect(trigger, setup), name="collect evidence")
        # A write that is not complete at the timeout continues in the background.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=self._timeout)

    async def _collect(self, trigger: EvidenceTrigger, setup: Setup) -> None:
        try:
            content = await self._gather(trigger, setup)
            text = await asyncio.to_thread(fit_to_size, content)
            await asyncio.to_thread(
                self._journal.keep_evidence, trigger.incident, trigger.action, trigger.kind, text
            )
        # No error may prevent the action.
        except Exception as error:
            facts = {"incident": trigger.incident}
            log.warning("evidence could not be stored", extra=facts, exc_info=error)

    async def _gather(self, trigger: EvidenceTrigger, setup: Setup) -> Mapping[str, Any]:
        # Less than the whole: storing the evidence takes time too.
        timeout = 0.75 * self._timeout
        missing: dict[str, str] = {}
        wanted = {} if trigger.kind == "end" else self._sources(trigger, setup)
        queries = {
            name: self._query(name, source, trigger, timeout, missing)
            for name, source in wanted.items()
        }
        snapshot_task = asyncio.create_task(
            self._take_snapshot(trigger, missing), name="take evidence snapshot"
        )
        futures = [one for one in queries.values() if one is not None]
        await asyncio.wait([snapshot_task, *futures], timeout=timeout)
        content: dict[str, Any] = {"missing": missing}
        if snapshot_task.done():
            if (snapshot := snapshot_task.result()) is not None and snapshot.exporter is not None:
                content["seen"] = relevant_facts(snapshot.exporter, trigger.run, trigger.key)
        else:
            snapshot_task.cancel()
            missing["the exporter's page"] = f"no response within {timeout:g} s"
        for name, answer in queries.items():
            if answer is None:
                continue
            if not answer.done():
                missing[name] = f"no response within {timeout:g} s"
            elif (error := answer.exception()) is not None:
                missing[name] = _error_text(error)
            else:
                _add_answer(content, name, answer.result())
        return content

    def _query(
        self,
        name: str,
        source: Source,
        trigger: EvidenceTrigger,
        timeout: float,
        missing: dict[str, str],
    ) -> asyncio.Future[Any] | None:
        # runs may have logs of the same name
        question = (name, *(() if name in OF_HOST else (trigger.run, trigger.key)))
        now = asyncio.get_running_loop().time()
        if (pending := self._pending.get(question)) is not None:
            if now < pending.asked_at + timeout:
                return pending.answer
            missing[name] = "an earlier query has not been answered yet"
            return None
        try:
            thread = self._thread_factory(f"evidence: {name}")
        except RuntimeError as error:  # the host is out of threads
            missing[name] = str(error)
            return None
        answer = thread.call(source)
        thread.close()
        self._pending[question] = _Pending(answer, now)
        answer.add_done_callback(lambda _: self._pending.pop(question))
        return answer

    async def _take_snapshot(
        self, trigger: EvidenceTrigger, missing: dict[str, str]
    ) -> Snapshot | None:
        """Returns the snapshot of the decision, or a new one if the decision had none."""
        if trigger.snapshot is not None:
            if trigger.snapshot.exporter is None:
                missing["the exporter's page"] = trigger.snapshot.unknown
            return trigger.snapshot
        try:
            return Snapshot(alerts=None, exporter=await self._observer().observe())
        except ObservationError as error:
            missing["the exporter's page"] = str(error)
            return None


def _add_answer(content: dict[str, Any], name: str, found: Any) -> None:
    if not name.startswith("log "):
        content[name] = found
    elif found is None:
        content["missing"][name] = "no such file, or not a regular file"
    else:
        logs = content.setdefault("logs", [])
        # The output of a worker may also be a log of its run.
        if found["path"] not in [known["path"] for known in logs]:
            logs.append(found)


def _error_text(error: BaseException) -> str:
    if isinstance(error, TrainwardenError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"


Facts = dict[str, Any]

MAX_SERVERS = 20


def relevant_facts(exporter: ExporterState, run: str, key: WorkerKey) -> Facts:
    """Returns the exporter's values that decisions about `key` and its `run` depend on."""
    runs = {run, key.run} - {""}

    def of_runs(states: Iterable[tuple[tuple[str, ...], Any]]) -> Facts:
        return {
            "/".join(name): _without_empty(asdict(state))
            for name, state in states
            if not runs or name[0] in runs
        }

    servers = (
        ((run, server.name), server)
        for run, found in exporter.servers.items()
        for server in found[:MAX_SERVERS]
    )
    facts: Facts = {
        "memory": {
            "available_bytes": exporter.memory_available_bytes,
            "floor_bytes": exporter.memory_floor_bytes,
            "oom_killed_at": exporter.oom_killed_at,
        },
        "workers": of_runs(exporter.workers.items()),
        "runs": of_runs(((name,), state) for name, state in exporter.runs.items()),
        "servers": of_runs(servers),
        "disks": {disk.path: _without_empty(asdict(disk)) for disk in exporter.disks},
        "brakes": of_runs(exporter.emergency_brakes.items()),
    }
    if exporter.gpu_orphans is not None:
        facts["gpu"] = {"orphan_holders": exporter.gpu_orphans}
    return {name: found for name, found in facts.items() if found}


def _without_empty(facts: Facts) -> Facts:
    """Returns what is known, as JSON can have it: sets as lists."""
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in facts.items()
        if value not in (None, "", frozenset())
    }


MAX_BYTES = 32 << 10
"""The maximum size of a piece of evidence, as JSON."""


def fit_to_size(content: Mapping[str, Any]) -> str:
    """Returns `content` as JSON of at most MAX_BYTES.

    Halves the longest list until the whole fits: drops the older lines of a log, the smaller
    processes of a table. Sets `shortened` if it drops anything.
    """
    kept = copy.deepcopy(dict(content))
    while len(text := json.dumps(kept, ensure_ascii=False).encode()) > MAX_BYTES:
        kept["shortened"] = True
        holder, name = max(_shrinkable_lists(kept), key=_json_size, default=(None, ""))
        if holder is None or _json_size((holder, name)) == 0:
            return json.dumps({"missing": {"everything": "too large"}, "shortened": True})
        longest = holder[name]
        half = len(longest) // 2
        holder[name] = longest[len(longest) - half :] if name == "lines" else longest[:half]
    return text.decode()


def _shrinkable_lists(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the location of every list that may be shortened."""
    for value in content.values():
        if isinstance(value, dict):
            yield from ((value, name) for name in value if isinstance(value[name], list))
        elif isinstance(value, list):
            yield from ((one, "lines") for one in value if isinstance(one, dict) and "lines" in one)


def _json_size(location: tuple[dict[str, Any], str]) -> int:
    holder, name = location
    return len(json.dumps(holder[name], ensure_ascii=False).encode()) if holder[name] else 0
