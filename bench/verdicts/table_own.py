"""The faults of Trainwarden itself, and the required alerts."""

from __future__ import annotations

from verdicts.faults import CONSEQUENCES, Fault
from verdicts.faults_own import (
    breaker_opens,
    collector_fails,
    config_refused,
    configs_differ,
    exporter_dies,
    goes_blind,
    person_not_reached,
    remediator_blocked,
    remediator_deaf,
    remediator_dies,
    remediator_gives_up,
    remediator_held,
    remediator_starves,
    scraped_seldom,
)
from verdicts.table_box import host_fault

HEALS = {"remediator": True}

OWN_FAULTS: tuple[Fault, ...] = (
    host_fault(
        "the exporter dies",
        exporter_dies,
        "TrainingExporterDown",
        "critical",
        45,
        beside=CONSEQUENCES,
    ),
    host_fault(
        "the exporter is scraped too seldom",
        scraped_seldom,
        "TrainingScrapedTooSeldom",
        "warning",
        200,
    ),
    host_fault("a collector fails", collector_fails, "TrainingCollectorFailing", "warning", 150),
    host_fault(
        "the exporter cannot see something", goes_blind, "TrainingWatchBlind", "warning", 150
    ),
    host_fault(
        "a configuration is refused",
        config_refused,
        "TrainingConfigReloadFailed",
        "warning",
        90,
        needs=HEALS,
    ),
    host_fault(
        "exporter and remediator have read other workers",
        configs_differ,
        "TrainingConfigsDiffer",
        "warning",
        150,
        needs=HEALS,
    ),
    host_fault(
        "the remediator dies",
        remediator_dies,
        "TrainingRemediatorDown",
        "critical",
        45,
        needs=HEALS,
    ),
    host_fault(
        "the remediator hears nothing",
        remediator_deaf,
        "TrainingRemediatorDeaf",
        "critical",
        220,
        needs=HEALS,
    ),
    host_fault(
        "the remediator gives up",
        remediator_gives_up,
        "TrainingRemediationGaveUp",
        "critical",
        15,
        needs=HEALS,
    ),
    host_fault(
        "the remediator is not allowed what is needed",
        remediator_blocked,
        "TrainingRemediationBlocked",
        "warning",
        45,
        needs=HEALS,
    ),
    host_fault(
        "the remediator has stopped itself",
        breaker_opens,
        "TrainingRemediationBreakerOpen",
        "critical",
        45,
        needs=HEALS,
    ),
    host_fault(
        "the remediator is held and left so",
        remediator_held,
        "TrainingRemediationHeld",
        "warning",
        4 * 3600 + 45,
        needs=HEALS,
    ),
    host_fault(
        "the remediator gets no memory",
        remediator_starves,
        "TrainingRemediatorStarved",
        "warning",
        45,
        needs=HEALS,
    ),
    host_fault(
        "the remediator reaches nobody",
        person_not_reached,
        "TrainingPersonNotReached",
        "warning",
        180,
        needs=HEALS,
    ),
)
