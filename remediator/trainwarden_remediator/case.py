"""What a decision about one rung of a ladder is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.decision import Decision, Incident, Reason, State, Verdict
from trainwarden_remediator.playbooks import Rung, Trouble
from trainwarden_remediator.targets import Budget, Target


@dataclass(frozen=True, slots=True)
class Case:
    """One rung, about to be decided.

    Whoever has started after `since` (Unix seconds) was started by somebody else. `spent`: it has
    been tried as often as it may, and no other is left. `watched`: that it is called for was seen
    already; the alert may be over.
    """

    incident: Incident
    trouble: Trouble
    rung: Rung
    index: int
    state: State
    now: float
    since: float
    spent: bool = False
    watched: bool = False

    def about(self, target: Target) -> WorkerKey:
        """Whose trouble it is: not that of a trainer which is restarted for another's sake."""
        named = WorkerKey(self.incident.run, self.incident.worker)
        another = self.rung.target == "trainer" and named.worker
        return named if another or named in target.keys else target.key

    def say(
        self, verdict: Verdict, reason: Reason, target: Budget | None = None, detail: str = ""
    ) -> Decision:
        return Decision(verdict, reason, target, detail, self.index)

    def wait(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.say(Verdict.WAIT, reason, target, detail)

    def refuse(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.say(Verdict.REFUSE, reason, target, detail)
