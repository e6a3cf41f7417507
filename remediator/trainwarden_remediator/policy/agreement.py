"""Decides what exporter and remediator must agree on before an action. Pure.

Each refusal names the harm of docs/harms.md that it prevents.
"""

from __future__ import annotations

from dataclasses import replace

from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Budget
from trainwarden_remediator.model import Decision, Incident, Verdict
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.context import DecisionContext


def refuse_other_configuration(
    context: DecisionContext, budget: Budget, exporter: ExporterState | None
) -> Decision | None:
    """A decision not to act while exporter and remediator do not go by the same file, else None.

    The exporter would report one process, and the remediator end another (harm 29).
    """
    setup, detail = context.state.setup, context.state.config_problem
    incident, waiting = context.incident, None
    if not detail and exporter is not None and _watches_others(exporter, setup, budget.key.run):
        file = setup.config.exporter.config
        detail = f"the exporter has loaded other workers than {file} has: reload it"
        # The exporter shows a run that begins, or that is stopped, at its next scrape.
        soon = "the exporter shows which runs there are at its next scrape"
        waiting = context.wait("observation_failed", budget, soon)
    if not detail:
        return None
    if context.observes:
        return context.wait("observe_mode", budget, detail)
    refusal = context.refuse("config_differs", budget, detail)
    if waiting is None or incident.last_decision == refusal.text:
        return refusal
    lasting = incident.repeated_for(waiting, context.now) >= SETTLING_SECONDS
    return refusal if lasting else waiting


def _watches_others(exporter: ExporterState, setup: Setup, run: str) -> bool:
    """Whether the exporter has loaded other workers than `setup` for an action on `run`.

    What matters for a run is what can find its processes; for a GPU cleanup it is every worker,
    because none of their processes is a leftover. An older exporter shows the hash of all alone.
    """
    if run and exporter.run_hashes:
        return exporter.run_hashes.get(run) != setup.workers_hash_of(run)
    return exporter.workers_hash not in (None, setup.workers_hash)


SETTLING_SECONDS = 90.0
"""How long the exporter may have loaded other workers before the operator is notified: runs of
`trainwarden run` come and go, and on a loaded host it is scraped late."""

DIFFERING_SECONDS = 10.0
"""The same of other processes: a start or an end shows up at different moments in two
observations."""


def refuse_other_processes(
    incident: Incident, decision: Decision, detail: str, *, observes: bool, now: float
) -> Decision:
    """Returns a decision instead of the restart `decision`, which could end another's process.

    One of the processes that match may belong to somebody else (harms 8 and 29). `detail` says
    which ones were found.
    """
    waiting = replace(decision, verdict=Verdict.WAIT, reason="ambiguous_target", detail=detail)
    refusal = replace(waiting, verdict=Verdict.REFUSE, reason="processes_differ")
    if observes:
        return waiting
    lasting = incident.repeated_for(waiting, now) >= DIFFERING_SECONDS
    return refusal if lasting or incident.last_decision == refusal.text else waiting
