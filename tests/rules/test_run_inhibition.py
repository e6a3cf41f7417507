"""What mutes what among the alerts about runs and their servers, asked of a running Alertmanager.

A cause mutes its symptoms, and never what would heal it.
"""

from __future__ import annotations

from collections.abc import Callable

Labels = dict[str, str]
Case = tuple[str, Labels, list[Labels], list[Labels]]

BOX: Labels = {"instance": "box-1:10977"}
OTHER_BOX: Labels = {"instance": "box-2:10977"}
RUN: Labels = BOX | {"run": "demo"}
OTHER_RUN: Labels = BOX | {"run": "other"}
ELSEWHERE: Labels = RUN | OTHER_BOX
CRITICAL: Labels = {"severity": "critical"}
WARNING: Labels = {"severity": "warning"}
HOLDS: Labels = {"remediation": "hold_restarts"}


def alert(title: str, severity: Labels = WARNING, /, **labels: str) -> Labels:
    return {"alertname": f"Training{title}"} | severity | labels


STALLED = alert("StepStalled", CRITICAL, remediation="restart_stalled_run")
STALLED_DEAD = alert("StepStalled", CRITICAL)
LONG_STEP = alert("StepStalled")
SLOW_UPDATE = alert("WeightUpdateSlow")
OVERDUE = alert("CheckpointOverdue", checkpoint="default")
LAG = alert("RolloutLag", rollout="batches")
STALE = alert("PolicyStale", rollout="batches")
NO_PRODUCER = alert("WaitingForRollouts", CRITICAL, cause="producer_gone")
NO_SERVER = alert("WaitingForRollouts", CRITICAL, cause="inference_down")
NO_FOLDER = alert("WaitingForRollouts", CRITICAL, cause="folder_not_writable")
LATE = alert("WaitingForRollouts", cause="slow")
SILENT = alert("LogSilent", log="trainer")
STORM = alert("ErrorStorm", log="trainer")
LINE = alert("TroubleLine", log="trainer", pattern="nccl_timeout")
LINE_OF_SERVER = alert("TroubleLine", log="trainer", pattern="engine_died")
NAN = alert("NotFinite", CRITICAL, log="trainer", name="loss")
NAN_REWARD = alert("NotFinite", log="trainer", name="reward")
BEAT = alert("HeartbeatMissed", name="watchdog")
BRAKE = alert("BrakeFiring", CRITICAL, remediation="restart_braking_worker", worker="a")
GPU_IDLE = alert("GpuIdle", gpu="0", uuid="GPU-0")

SERVER: Labels = {"server": "s", "engine": "vllm", "worker": "inference", "role": "inference"}
DOWN = alert("InferenceDown", CRITICAL, remediation="restart_inference") | SERVER
HUNG = alert("InferenceHung", CRITICAL, remediation="restart_inference") | SERVER
DOWN_ALONE = alert("InferenceDown", CRITICAL, remediation="restart_inference", server="s")
STARTING = alert("InferenceStartingTooLong", CRITICAL, server="s", engine="vllm")
PAUSED = alert("InferencePausedTooLong", CRITICAL, server="s", engine="vllm")
RECOVERING: Labels = alert("InferenceRecovering", {"severity": "info"}) | SERVER
STARVED = alert("InferenceQueueStarved")
ERRORS = alert("InferenceErrors", server="s", engine="vllm")
BEHIND = alert("InferenceWeightsBehind", server="s", engine="vllm")
FLAPPING = alert("InferenceFlapping", server="s", engine="vllm")

START: Labels = {"remediation": "start_missing_worker"}
GONE = alert("WorkerGone", CRITICAL) | START
SERVER_GONE = GONE | {"worker": "inference", "role": "inference"}
ORCHESTRATOR_GONE = GONE | {"worker": "orchestrator", "role": "orchestrator"}
JUDGE_GONE = GONE | {"worker": "evals", "role": "evaluation"}
A_GONE = GONE | {"worker": "a", "role": "worker"}
ENDED = alert("WorkerEnded", worker="a", role="worker")
OVER_LIMIT = alert("WorkerMemoryOverLimit", CRITICAL, remediation="restart_leaking_worker")
OVER_LIMIT |= {"worker": "a", "role": "worker"}
LOOP = alert("WorkerRestartLoop", CRITICAL, worker="a", role="worker") | HOLDS
FLOOR = alert("MemoryFloor", CRITICAL, remediation="relieve_memory")

POD: Labels = {"container": "pod"}
POD_STOPPED = alert("ContainerStopped", CRITICAL) | POD


LEFTOVERS = alert("GpuHeldByLeftovers", CRITICAL, remediation="clean_gpu", gpu="0", uuid="GPU-0")
BLIND = alert("WatchBlind", watch="logs", log="trainer")

CASES: list[Case] = [
    # what, the cause, what it mutes, what it leaves alone. What is left alone and would itself mute
    # something stands in a case of its own.
    (
        "a server that is down is one problem",
        DOWN | RUN,
        [
            *(STORM | RUN, STALLED | RUN, NO_SERVER | RUN, LATE | RUN, LAG | RUN, STALE | RUN),
            *(STARVED | RUN, SILENT | RUN, OVERDUE | RUN, GPU_IDLE | RUN, LINE_OF_SERVER | RUN),
            *(ERRORS | RUN, BEHIND | RUN),
        ],
        [
            *(STORM | OTHER_RUN, STALLED | OTHER_RUN, STALLED | ELSEWHERE, FLAPPING | RUN),
            *(ERRORS | RUN | {"server": "t"}, NAN | RUN, BEAT | RUN, FLOOR | BOX),
        ],
    ),
    (
        "a server that is down is restarted whole, and its worker not besides",
        DOWN | RUN,
        [SERVER_GONE | RUN],
        [SERVER_GONE | OTHER_RUN],
    ),
    (
        "a server that is down explains neither other parts nor what they say",
        DOWN | RUN,
        [],
        [ORCHESTRATOR_GONE | RUN, SERVER_GONE | ELSEWHERE, NO_FOLDER | RUN, LINE | RUN],
    ),
    (
        "a server that hangs is one problem",
        HUNG | RUN,
        [STORM | RUN, STALLED | RUN, NO_SERVER | RUN, LATE | RUN, SERVER_GONE | RUN],
        [STALLED | OTHER_RUN, NAN | RUN],
    ),
    (
        "a server that loads after a fault is still one problem, and heals no trainer that hangs",
        RECOVERING | RUN,
        [
            *(STORM | RUN, LAG | RUN, STALE | RUN, SILENT | RUN, OVERDUE | RUN, GPU_IDLE | RUN),
            LINE_OF_SERVER | RUN,
        ],
        [STORM | OTHER_RUN, STALLED | RUN, NAN | RUN],
    ),
    (
        "a server that recovers keeps neither itself nor other parts from being healed",
        RECOVERING | RUN,
        [],
        [SERVER_GONE | RUN, STARTING | RUN, LINE | RUN],
    ),
    (
        "a server that is nobody's worker keeps no worker from being started",
        DOWN_ALONE | RUN,
        [],
        [SERVER_GONE | RUN],
    ),
    (
        "a part that is gone mutes what its run shows for it",
        ORCHESTRATOR_GONE | RUN,
        [
            *(STALLED | RUN, STALLED_DEAD | RUN, LONG_STEP | RUN, NO_PRODUCER | RUN, LATE | RUN),
            *(LAG | RUN, STARVED | RUN, SILENT | RUN, STORM | RUN, OVERDUE | RUN, BEAT | RUN),
            *(POD_STOPPED | RUN, GPU_IDLE | RUN),
        ],
        [STALLED | OTHER_RUN, BEAT | BOX, NAN | RUN, BRAKE | RUN],
    ),
    (
        "a part that is gone mutes neither its own start nor other causes",
        ORCHESTRATOR_GONE | RUN,
        [],
        [A_GONE | RUN, DOWN | RUN, NO_FOLDER | RUN, LINE | RUN],
    ),
    (
        "a judge that is gone explains no stall",
        JUDGE_GONE | RUN,
        [],
        [STALLED | RUN, NO_PRODUCER | RUN, BEAT | RUN, STORM | RUN],
    ),
    (
        "a worker that has ended explains the stall of its run",
        ENDED | RUN,
        [STALLED | RUN, NO_PRODUCER | RUN, BEAT | RUN],
        [STALLED | OTHER_RUN],
    ),
    (
        "a worker that has ended explains no stall of a run that continued without it",
        ENDED | RUN | {"run_continues": "true"},
        [],
        [STALLED | RUN, NO_PRODUCER | RUN, BEAT | RUN, STORM | RUN],
    ),
    (
        "a worker that is gone needs no second restart for its brake",
        A_GONE | RUN,
        [BRAKE | RUN],
        [BRAKE | OTHER_RUN, BRAKE | RUN | {"worker": "b"}],
    ),
    (
        "a worker over its limit needs no second restart for its brake",
        OVER_LIMIT | RUN,
        [BRAKE | RUN],
        [BRAKE | RUN | {"worker": "b"}, STALLED | RUN],
    ),
    (
        "a worker in a loop holds its restarts, and that of the run which stalls for it",
        LOOP | RUN,
        [BRAKE | RUN, STALLED | RUN, NO_PRODUCER | RUN, DOWN | RUN | {"worker": "a"}],
        [FLOOR | BOX, STALLED | OTHER_RUN, LEFTOVERS | BOX],
    ),
    (
        "a worker in a loop holds nobody else's restarts",
        LOOP | RUN,
        [],
        [DOWN | RUN, A_GONE | RUN | {"worker": "b"}, NO_FOLDER | RUN],
    ),
    (
        "a folder that cannot be written to is not healed by a restart of the run",
        NO_FOLDER | RUN,
        [STALLED | RUN, STALLED_DEAD | RUN, LAG | RUN, SILENT | RUN, GPU_IDLE | RUN, LATE | RUN],
        [STALLED | OTHER_RUN, STORM | RUN, BRAKE | RUN],
    ),
    (
        "a folder that cannot be written to leaves the dead to be started",
        NO_FOLDER | RUN,
        [],
        [A_GONE | RUN, DOWN | RUN],
    ),
    (
        "a batch that is late explains the quiet",
        LATE | RUN,
        [LAG | RUN, SILENT | RUN, GPU_IDLE | RUN, OVERDUE | RUN],
        [STALE | RUN, LAG | OTHER_RUN],
    ),
    (
        "a batch that is late leaves the restart of a run that stalls",
        LATE | RUN,
        [],
        [STALLED | RUN],
    ),
    (
        "a server that starts for too long explains the late batch, not the stall",
        STARTING | RUN,
        [LATE | RUN],
        [STALLED | RUN, LATE | OTHER_RUN],
    ),
    ("a server that starts is left to be started", STARTING | RUN, [], [SERVER_GONE | RUN]),
    ("a pause explains the late batch", PAUSED | RUN, [LATE | RUN], [STALLED | RUN]),
    ("nobody who asks explains the late batch", STARVED | RUN, [LATE | RUN], [STALLED | RUN]),
    (
        "a run that stands still also saves nothing, says nothing, and uses no GPU",
        STALLED | RUN,
        [
            *(LONG_STEP | RUN, GPU_IDLE | RUN, SILENT | RUN, OVERDUE | RUN, LAG | RUN, STALE | RUN),
            SLOW_UPDATE | RUN,
        ],
        [NAN | RUN, OVERDUE | OTHER_RUN, STORM | RUN, BEAT | RUN],
    ),
    (
        "a run that stands still says nothing of why",
        STALLED | RUN,
        [],
        [LATE | RUN, LINE | RUN, STARVED | OTHER_RUN, PAUSED | OTHER_RUN],
    ),
    ("a long step mutes nothing", LONG_STEP | RUN, [], [SILENT | RUN, OVERDUE | RUN]),
    (
        "a line that says what it is comes before a number of lines in its log",
        LINE | RUN,
        [STORM | RUN],
        [STORM | RUN | {"log": "inference"}, STORM | OTHER_RUN, STALLED | RUN],
    ),
    (
        "a loss that is no number comes before a reward that is none",
        NAN | RUN,
        [NAN_REWARD | RUN],
        [NAN_REWARD | OTHER_RUN, STALLED | RUN],
    ),
    (
        "an exporter without observations mutes nothing",
        BLIND | RUN,
        [],
        [SILENT | RUN, STORM | RUN, OVERDUE | RUN, BEAT | RUN],
    ),
]


def test_the_shipped_rules_mute_as_the_table(assert_mutes: Callable[[list[Case]], None]) -> None:
    assert_mutes(CASES)
