"""Every cause with every symptom that it mutes, each pair live, with the labels of the rules.

The other files about inhibition say of each cause what it must leave alone; here the alerts are
made from the rules themselves, so a mute that asks for a label which no such alert has is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from labelling import declared, labels_of

Alerts = list[dict[str, Any]]
Labels = dict[str, str]
Case = tuple[str, Labels, list[Labels], list[Labels]]

CONFIG = Path(__file__).resolve().parents[2] / "rules" / "alertmanager.yml"
ELSEWHERE = "box-2:10977"
VALUES: Labels = {"instance": "box-1:10977", "role": "trainer", "gpu": "0", "uuid": "GPU-0"}
"""What labels hold where it matters; all others hold their own name."""

LACK_OF_A_PART = [
    *("StepStalled", "RolloutLag", "PolicyStale", "InferenceQueueStarved", "LogSilent"),
    *("ErrorStorm", "CheckpointOverdue", "HeartbeatMissed", "ContainerStopped", "GpuIdle"),
    "WaitingForServer",
    *("WaitingForRollouts/critical cause=producer_gone", "WaitingForRollouts/warning cause=slow"),
    "WaitingForRollouts/critical cause=inference_down",
]
SERVER_OUT = [
    *("ErrorStorm", "StepStalled", "RolloutLag", "PolicyStale", "InferenceQueueStarved"),
    *("LogSilent", "CheckpointOverdue", "GpuIdle", "WorkerGone", "WaitingForServer"),
    *("TroubleLine pattern=engine_died", "TroubleLine pattern=rollouts_stalled"),
    "WaitingForRollouts/critical cause=inference_down",
    "WaitingForRollouts/warning cause=slow",
    *("InferenceErrors", "InferenceNoModel", "InferenceQueueFlooded", "InferenceKvCacheFull"),
    "InferenceWeightsBehind",
]
RESTARTS = [
    *("WorkerGone", "WorkerMemoryOverLimit/critical", "WorkerOldAndGrowing", "BrakeFiring"),
    *("InferenceDown", "InferenceHung", "WorkerTrialsDone"),
]
NO_ROOM = [
    *RESTARTS,
    *("CheckpointOverdue", "CheckpointIncomplete", "CheckpointRecoveryMismatch", "StepStalled"),
    *("ErrorStorm", "DiskProbeFailing", "DiskSlow", "TroubleLine pattern=disk_full"),
    "WaitingForRollouts/critical cause=folder_not_writable",
    "WaitingForRollouts/warning cause=slow",
]

MATRIX: Mapping[str, Sequence[str]] = {
    # Cause over symptom over what follows from that; a name alone means all alerts of that name.
    "WorkerGone": [
        *LACK_OF_A_PART,
        *("WorkerLeak", "WorkerOldAndGrowing", "WorkerTrialsDone", "BrakeFiring", "OomKill"),
    ],
    "WorkerEnded run_continues=": LACK_OF_A_PART,
    "WorkerInterrupted": LACK_OF_A_PART,
    "WorkerRestartLoop": [*RESTARTS, *LACK_OF_A_PART],
    "WorkerMemoryOverLimit/critical": [
        *("WorkerLeak", "WorkerOldAndGrowing", "WorkerTrialsDone", "BrakeFiring")
    ],
    "InferenceDown": SERVER_OUT,
    "InferenceHung": [*SERVER_OUT, "InferenceDown"],
    "InferenceRecovering": [
        *("ErrorStorm", "RolloutLag", "PolicyStale", "LogSilent", "CheckpointOverdue", "GpuIdle"),
        *("TroubleLine pattern=engine_died", "TroubleLine pattern=rollouts_stalled"),
    ],
    "InferenceStartingTooLong": ["WaitingForRollouts/warning cause=slow"],
    "InferencePausedTooLong": ["WaitingForRollouts/warning cause=slow"],
    "InferenceNoModel": ["WaitingForRollouts/warning cause=slow"],
    "InferenceQueueStarved": ["WaitingForRollouts/warning cause=slow"],
    "ContainerRestartLoop": [
        *RESTARTS,
        *("StepStalled", "WaitingForRollouts/critical cause=producer_gone", "RolloutLag"),
        *("InferenceStartingTooLong", "LogSilent", "ErrorStorm", "CheckpointOverdue"),
        *("HeartbeatMissed", "GpuIdle", "ContainerStopped", "ContainerUnhealthy", "ExporterDown"),
        "WorkerRestartLoop",
    ],
    "ContainerOom": ["OomKill", "TroubleLine pattern=host_out_of_memory"],
    "OomKill": [
        *("TroubleLine pattern=host_out_of_memory", "TroubleLine pattern=process_killed"),
    ],
    "DiskFilling/critical": [*NO_ROOM, "DiskFilling/warning"],
    "DiskReadOnly": NO_ROOM,
    "DiskInodes/critical": ["DiskProbeFailing", "DiskSlow"],
    "WaitingForRollouts/critical cause=folder_not_writable": [
        *("StepStalled", "GpuIdle", "LogSilent", "CheckpointOverdue", "RolloutLag"),
    ],
    "WaitingForRollouts/warning cause=slow": [
        *("GpuIdle", "LogSilent", "CheckpointOverdue", "RolloutLag"),
    ],
    "WaitingForServer": ["GpuIdle", "LogSilent", "CheckpointOverdue", "RolloutLag"],
    "StepStalled/critical": [
        *("GpuIdle", "LogSilent", "CheckpointOverdue", "RolloutLag", "PolicyStale"),
        "WeightUpdateSlow",
    ],
    "TroubleLine": ["ErrorStorm"],
    "GpuDriverFailing": [
        *("GpuLost", "GpuHeldByLeftovers", "GpuExclusiveMode", "GpuXid", "GpuMemoryErrors"),
        *(
            "GpuRowRemap",
            "GpuThrottled",
            "GpuStraggler",
            "GpuLinkSlow",
            "GpuMemoryNearlyFull",
            "GpuIdle",
        ),
        *("CollectorFailing collector=gpu", "CollectorFailing collector=xid"),
        *("WatchBlind watch=xid", "StepStalled", "WaitingForRollouts/warning cause=slow"),
    ],
    "GpuLost": [
        *("GpuExclusiveMode", "GpuXid/warning", "GpuRowRemap/warning", "GpuThrottled"),
        *("GpuStraggler", "GpuLinkSlow", "GpuMemoryNearlyFull", "GpuIdle"),
    ],
    "GpuThrottled": ["GpuStraggler", "RankSlow"],
    "GpuStraggler": ["RankSlow"],
    "GpuLinkSlow": ["RankSlow"],
    "GpuXid/critical": [
        *("GpuLost", "TroubleLine pattern=gpu_fault", "TroubleLine pattern=nccl_timeout"),
    ],
    "GpuMemoryErrors": ["GpuXid xid=48"],
    "GpuRowRemap/critical": ["GpuXid xid=48"],
    "GpuHeldByLeftovers": ["TroubleLine pattern=gpu_busy"],
    "RemediatorDown": ["RemediatorDeaf", "ConfigReloadFailed", "ConfigsDiffer"],
    "RemediationBreakerOpen": ["RemediationBlocked reason=breaker_open"],
    "RemediationHeld run= worker=": ["RemediationBlocked reason=held"],
}
VARIES = re.compile("cause|pattern|reason|watch|collector|xid")
"""Labels whose value tells which alerts of one name are meant."""
SPEAKS_ON = re.compile(
    "TrainingExporterDown|TrainingRemediat.*|TrainingWatchdog|TrainingContainerRestartLoop"
)
"""What an exporter that is down does not mute."""


class Book:
    """The alerts that the shipped rules can raise."""

    def __init__(self, rules: Alerts) -> None:
        known = declared()
        self.rules = [
            (rule, labels_of(promql.parse(rule["expr"]), known) or frozenset()) for rule in rules
        ]

    def named(self, text: str) -> Iterator[Labels]:
        """The alerts that an entry means: `Name`, `Name/severity`, `Name label=value`.

        A label without a value: the alert does not carry it.
        """
        first, *rest = text.split()
        name, _, severity = first.partition("/")
        chosen = dict(word.split("=") for word in rest)
        of_name = [one for one in self.rules if one[0]["alert"] == f"Training{name}"]
        own = {label for rule, _ in of_name for label in rule["labels"]}
        found = False
        for rule, carried in of_name:
            labels = rule["labels"]
            absent = {label for label, value in chosen.items() if not value}
            if severity in ("", labels["severity"]) and not absent & labels.keys():
                assert chosen.keys() <= carried | own, f"{text} has only {sorted(carried | own)}"
                found = True
                held = {label: VALUES.get(label, label) for label in carried} | chosen
                present = {label: value for label, value in held.items() if value}
                yield {"alertname": rule["alert"], **present, **labels}
        assert found, f"there is no alert {text}"

    def names(self) -> set[str]:
        return {rule["alert"].removeprefix("Training") for rule, _ in self.rules}


@pytest.fixture(scope="module")
def book(alerts: Alerts) -> Book:
    return Book(alerts)


def cases(book: Book, matrix: Mapping[str, Sequence[str]]) -> Iterator[Case]:
    """Each pair in a world of its own, with the same symptom on another box."""
    number = 0
    for cause, symptoms in matrix.items():
        for symptom in symptoms:
            for source in book.named(cause):
                for target in book.named(symptom):
                    number += 1
                    what = f"{number}: {cause} mutes {symptom}"
                    yield what, source, [target], [target | {"instance": ELSEWHERE}]


def test_every_cause_mutes_its_symptoms_on_its_box_alone(
    book: Book, assert_mutes: Callable[[Sequence[Case]], None]
) -> None:
    assert_mutes([*cases(book, MATRIX)])


def test_the_worse_of_two_alerts_of_one_name_mutes_the_milder(
    book: Book, assert_mutes: Callable[[Sequence[Case]], None]
) -> None:
    both = {
        rule["alert"].removeprefix("Training")
        for rule, _ in book.rules
        if rule["labels"]["severity"] == "critical"
    } & {
        rule["alert"].removeprefix("Training")
        for rule, _ in book.rules
        if rule["labels"]["severity"] == "warning"
    }
    assert {"StepStalled", "WorkerMemoryOverLimit", "DiskFilling"} <= both
    pairs = {f"{name}/critical": [f"{name}/warning"] for name in both}
    assert_mutes([*cases(book, pairs)])


def test_an_exporter_that_is_down_mutes_all_its_alerts(
    book: Book, assert_mutes: Callable[[Sequence[Case]], None]
) -> None:
    reported = sorted(name for name in book.names() if not SPEAKS_ON.fullmatch(f"Training{name}"))
    made = [case for case in cases(book, {"ExporterDown": reported}) if "instance" in case[2][0]]
    assert len(made) >= len(reported)
    assert_mutes(made)


def test_a_reboot_mutes_nothing(book: Book, assert_mutes: Callable[[Sequence[Case]], None]) -> None:
    """It is the cause of much, and what it took down must be started."""
    (reboot,) = book.named("Reboot")
    made: list[Case] = [
        (f"{number}: a reboot leaves {name}", reboot, [], [symptom])
        for number, name in enumerate(sorted(book.names() - {"Reboot", "ExporterDown"}))
        for symptom in [*book.named(name)][:1]
    ]
    assert_mutes(made)


def meets(matcher: str, labels: Mapping[str, str]) -> bool:
    """As Alertmanager matches: a label that is not there is empty."""
    found = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher)
    assert found is not None, matcher
    name, operator, value = found.groups()
    held = labels.get(name, "")
    same = re.fullmatch(value, held) is not None if "~" in operator else held == value
    return same != operator.startswith("!")


def test_the_matrix_has_every_pair_that_the_configuration_names(book: Book) -> None:
    """By the names in it: what mutes by other labels, as what holds restarts does, goes by all."""
    listed = {
        (source["alertname"], target["alertname"])
        for cause, symptoms in MATRIX.items()
        for symptom in symptoms
        for source in book.named(cause)
        for target in book.named(symptom)
    }
    every = [labels for name in book.names() for labels in book.named(name)]
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        by_name = [m for m in rule["source_matchers"] if m.startswith("alertname")]
        if not by_name or by_name == ['alertname="TrainingExporterDown"']:
            continue
        sources = {a["alertname"] for a in every if all(meets(m, a) for m in by_name)}
        named = [m for m in rule["target_matchers"] if not VARIES.match(m)]
        targets = {a["alertname"] for a in every if all(meets(m, a) for m in named)}
        assert sources, rule
        assert targets, rule
        missing = {(s, t) for s in sources for t in targets} - listed
        # a name that only another severity of the same source mutes is listed with that severity
        assert not missing, (rule, missing)
