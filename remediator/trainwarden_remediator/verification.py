"""Judges whether an action has helped, by what the exporter shows afterwards. Pure.

All times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.wording import plural
from trainwarden_remediator.grounds import is_down
from trainwarden_remediator.playbooks import Verify
from trainwarden_remediator.sight import RunSight, ServerSight, Sight

UNASKED_SECONDS = 45.0
"""A server that has been up for so long and was never asked for a token cannot be: some engines,
and all routers, are not."""

HOPELESS_SECONDS = 30.0
"""How long a server that the run needs may be down before its first step is waited for in vain."""


@dataclass(frozen=True, slots=True)
class Check:
    """What an action on `key`, begun at `began`, is verified by, beside its worker's own health.

    `checkpoint` is the step of the newest complete one when it was meant; `mendable` are the
    workers that something else can be done about; `keys` are all its workers, where these are
    several.
    """

    key: WorkerKey
    began: float
    verify: Verify
    checkpoint: float | None = None
    mendable: Collection[WorkerKey] = ()
    keys: Collection[WorkerKey] = ()

    def illness(self, sight: Sight, now: float) -> str:
        """What keeps it from having helped, or nothing."""
        return (self.verify.serves and self._silence(sight, now)) or (
            (self.verify.progress and self._standstill(sight)) or ""
        )

    def grant(self, sight: Sight) -> float:
        """Seconds beyond those of `verify` that its start may take, as it stands now."""
        grants = [0.0]
        if self.verify.serves:
            servers = self._servers(sight)
            grants += [one.start_grace for one in servers if one.reason == "starting"]
        run = sight.runs.get(self.key.run)
        if self.verify.progress and run is not None and not self._has_made_step(run):
            grants.append(run.stall_limit or 0.0)
        return max(grants)

    def lost_cause(self, sight: Sight, now: float) -> str:
        """Why it need not be waited for any longer, or nothing.

        While it is waited for, nothing else is done in its run: also not what it waits for itself.
        """
        if not self.verify.progress:
            return ""
        for server in sight.servers.get(self.key.run, ()):
            since = max(server.since or self.began, self.began)
            whose = WorkerKey(self.key.run, server.worker)
            if (
                whose not in (self.key, *self.keys)
                and whose in self.mendable
                and is_down(server)
                and now - since >= HOPELESS_SECONDS
            ):
                return f"its inference server {server.name} is down ({server.reason})"
        return ""

    def remark(self, sight: Sight) -> str:
        """What is odd about it though it has helped, or nothing."""
        if self.verify.serves and any(map(_is_never_asked, self._servers(sight))):
            return "it could not be asked for a token"
        run = sight.runs.get(self.key.run)
        if not self.verify.progress or run is None or run.finished:
            return ""
        first, saved = run.first_step, self.checkpoint
        if first is not None and saved is not None and saved < (run.checkpoint or 0.0) < first:
            saved = run.checkpoint  # it saved once more when it was told to end
        start = run.resume_step if saved is None else saved
        if start is None or first is None:
            return "at which step it resumed is not known"
        if run.resume_step is not None and run.resume_step < start:
            return f"resumed from step {run.resume_step:g}, though step {start:g} was saved"
        off = first - start - 1
        if not off:
            return ""
        did = f"{'skipped' if off > 0 else 'repeated'} {plural(abs(round(off)), 'step')}"
        return f"{did}: resumed with step {first:g}, not {start + 1:g}"

    def _servers(self, sight: Sight) -> tuple[ServerSight, ...]:
        """The inference servers of all its workers."""
        return tuple(one for key in self.keys or (self.key,) for one in sight.servers_of(key))

    def _silence(self, sight: Sight, now: float) -> str:
        servers = self._servers(sight)
        if not servers:
            return "the exporter shows no inference server of it"
        for server in servers:
            worker = sight.workers.get(WorkerKey(self.key.run, server.worker))
            started = max(self.began, (worker.started_at if worker else None) or 0.0)
            if not server.up:
                return f"{server.name} is not up ({server.reason or 'not said why'})"
            if (server.worked_at or 0.0) > started:
                continue
            if _is_never_asked(server) and now - (server.since or now) >= UNASKED_SECONDS:
                continue
            if not server.answered or (server.asked_at or 0.0) <= started:
                return f"{server.name} has not answered with a token yet"
        return ""

    def _standstill(self, sight: Sight) -> str:
        run = sight.runs.get(self.key.run)
        if run is None:
            return "the exporter does not show the run's progress"
        if run.finished or self._has_made_step(run):
            return ""
        return "it has made no step yet"

    def _has_made_step(self, run: RunSight) -> bool:
        return run.last_step_at is not None and run.last_step_at > self.began


def _is_never_asked(server: ServerSight) -> bool:
    return server.asked_at is None and server.worked_at is None
