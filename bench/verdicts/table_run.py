"""The faults of the run itself, and the alerts that must tell them."""

from __future__ import annotations

from trainwarden_exporter.processes.rank_lags import MIN_STEPS, WINDOW_SECONDS
from trainwarden_exporter.progress.stall_limits import STUCK_SECONDS
from verdicts.faults import (
    CONSEQUENCES,
    ERRORS,
    Expected,
    Fault,
    beyond_a_step,
    late,
    pause_limit_of,
    restart_limit_of,
    stall_limit_of,
)
from verdicts.faults_run import (
    batch_never_comes,
    brake,
    extra_log,
    folder_not_writable,
    goes_silent,
    gradient_not_finite,
    hangs,
    hangs_after_trouble,
    lags,
    loss_not_finite,
    older_save_damaged,
    one_bad_line,
    producer_dies,
    rank_is_slow,
    recovery_mismatch,
    resumes_again_and_again,
    resumes_elsewhere,
    save_damaged,
    save_dies,
    saves_nothing,
    stale_policy,
    storm,
    trainer_unwatched,
    update_too_slow,
    writable,
)
from verdicts.run import Run

TELL_STEPS = ("areal", "prime_rl", "verl", "openrlhf", "slime", "nemo_rl", "torchtitan", "skyrl")
TELL_WAITING = ("prime_rl", "slime", "nemo_rl", "skyrl")
SHORT = {"step": 12.0, "update": 2.0, "save": 20.0, "evaluation": 30.0}


def _after_trouble(run: Run) -> float:
    return max(60.0, stall_limit_of(run)) + 20


def _stall(run: Run) -> float:
    return pause_limit_of(run) + 20


def _restart(run: Run) -> float:
    return restart_limit_of(run) + 20


def _stuck(run: Run) -> float:
    """Without evaluations in its log, but with stacks that show it stuck."""
    return max(STUCK_SECONDS, stall_limit_of(run)) + 20


def _warned(run: Run) -> float:
    return 0.6 * pause_limit_of(run) + 45


def _rank(run: Run) -> float:
    """Once half of the steps that are compared are late, for two minutes and then for ten."""
    compared = max(WINDOW_SECONDS, MIN_STEPS * 2 * run.box.shape.step)
    return compared + 120 + 600 + 45


RUN_FAULTS: tuple[Fault, ...] = (
    Fault(
        "a run hangs in a step",
        hangs,
        (
            Expected(
                "TrainingStepStalled", "critical", _restart, {"remediation": "restart_stalled_run"}
            ),
            Expected("TrainingStepStalled", "warning", _warned),
        ),
        420,
        CONSEQUENCES,
        {**SHORT, "inference": False},
        ("openrlhf", "skyrl", "nemo_rl"),
        night=1,
    ),
    Fault(
        "a run hangs in a step, and its framework tells no evaluations",
        hangs,
        (
            Expected(
                "TrainingStepStalled", "critical", _stuck, {"remediation": "restart_stalled_run"}
            ),
            Expected("TrainingStepStalled", "warning", _warned),
        ),
        420,
        CONSEQUENCES,
        {**SHORT, "inference": False},
        ("verl", "torchtitan", "areal"),
        night=1,
    ),
    Fault(
        "a run hangs in a step, and its log says why",
        hangs_after_trouble,
        (
            Expected(
                "TrainingStepStalled",
                "critical",
                _after_trouble,
                {"remediation": "restart_stalled_run"},
            ),
            Expected("TrainingTroubleLine", "warning", 75),
        ),
        420,
        CONSEQUENCES,
        {**SHORT, "inference": False},
        ("verl", "torchtitan", "areal"),
        night=1,
    ),
    Fault(
        "a run hangs whose trainer nobody watches",
        hangs,
        (Expected("TrainingStepStalled", "critical", _stall, {"remediation": ""}),),
        420,
        CONSEQUENCES,
        {**SHORT, "inference": False},
        ("verl", "openrlhf", "torchtitan"),
        trainer_unwatched,
    ),
    Fault(
        "a weight update takes nearly as long as it may",
        update_too_slow,
        (Expected("TrainingWeightUpdateSlow", "warning", 30),),
        300,
        {
            **CONSEQUENCES,
            "TrainingInferencePausedTooLong": "the server is paused for as long",
        },
        {**SHORT, "sleeps": False},
        ("areal", "slime", "nemo_rl", "skyrl"),
        night=1,
    ),
    Fault(
        "a run resumes from the same step again and again",
        resumes_again_and_again,
        (Expected("TrainingTimeLost", "warning", 3600 + 900 + 180),),
        4800,
        {
            "TrainingCheckpointOverdue": "it saves nothing in its first minutes",
            "TrainingCheckpointIncomplete": "a restart breaks a save off",
            "TrainingGpuIdle": "it starts for most of the time",
            "TrainingLogSilent": "a start writes nothing",
        },
        {**SHORT, "inference": False},
        ("verl", "openrlhf", "torchtitan"),
    ),
    Fault(
        "no batch comes, though all parts live",
        batch_never_comes,
        (Expected("TrainingWaitingForRollouts", "warning", late, {"cause": "slow"}),),
        200,
        CONSEQUENCES,
        SHORT,
        TELL_WAITING,
        night=4,
    ),
    Fault(
        "the folder for batches is not writable",
        folder_not_writable,
        (
            Expected(
                "TrainingWaitingForRollouts",
                "critical",
                beyond_a_step,
                {"cause": "folder_not_writable"},
            ),
        ),
        200,
        CONSEQUENCES,
        {**SHORT, "rollout_folder": True},
        ("prime_rl",),
        writable,
        night=4,
    ),
    Fault(
        "the process that makes the batches dies",
        producer_dies,
        (
            Expected("TrainingWorkerGone", "critical", 30, {"role": "orchestrator"}),
            Expected(
                "TrainingWaitingForRollouts",
                "critical",
                beyond_a_step,
                {"cause": "producer_gone"},
            ),
        ),
        200,
        CONSEQUENCES,
        SHORT,
        ("prime_rl", "skyrl"),
        night=4,
    ),
    Fault(
        "batches lag behind the trainer",
        lags,
        (Expected("TrainingRolloutLag", "warning", 140),),
        240,
        {},
        {**SHORT, "rollout_folder": True},
        ("prime_rl",),
    ),
    Fault(
        "batches come from too old a policy",
        stale_policy,
        (Expected("TrainingPolicyStale", "warning", 380),),
        480,
        {},
        SHORT,
        ("prime_rl", "areal"),
    ),
    Fault(
        "a run stops saving",
        saves_nothing,
        (Expected("TrainingCheckpointOverdue", "warning", 345),),
        420,
        {},
        {**SHORT, "saves": True, "save_every": 300.0, "interval_configured": True},
        TELL_STEPS,
    ),
    Fault(
        "a checkpoint is begun and never completed",
        save_dies,
        (Expected("TrainingCheckpointIncomplete", "warning", 720),),
        840,
        {"TrainingCheckpointOverdue": "none is completed any more"},
        {**SHORT, "saves": True, "save_every": 400.0},
        TELL_STEPS,
        night=2,
    ),
    Fault(
        "the newest checkpoint is damaged",
        save_damaged,
        (Expected("TrainingCheckpointDamaged", "critical", 210),),
        300,
        {"TrainingCheckpointOverdue": "none is saved meanwhile"},
        {**SHORT, "saves": True, "save_every": 400.0},
        TELL_STEPS,
        night=2,
    ),
    Fault(
        "an older checkpoint is damaged",
        older_save_damaged,
        (Expected("TrainingCheckpointDamaged", "warning", 210),),
        300,
        {},
        {**SHORT, "saves": True, "save_every": 400.0},
        TELL_STEPS,
    ),
    Fault(
        "a restart resumes from an older checkpoint",
        resumes_elsewhere,
        (Expected("TrainingResumedElsewhere", "warning", 75),),
        150,
        {},
        {**SHORT, "saves": True, "save_every": 400.0},
        TELL_STEPS,
    ),
    Fault(
        "the recovery record does not fit",
        recovery_mismatch,
        (Expected("TrainingCheckpointRecoveryMismatch", "warning", 1000),),
        1100,
        {"TrainingCheckpointOverdue": "none is saved meanwhile"},
        {**SHORT, "saves": True, "save_every": 400.0},
        ("areal",),
        night=2,
    ),
    Fault(
        "the loss is no number",
        loss_not_finite,
        (Expected("TrainingNotFinite", "critical", 140),),
        240,
        {},
        {"inference": False},
        TELL_STEPS,
    ),
    Fault(
        "the gradient is no number",
        gradient_not_finite,
        (Expected("TrainingNotFinite", "warning", 320),),
        420,
        {},
        {"inference": False},
        TELL_STEPS,
    ),
    Fault(
        "a log falls silent",
        goes_silent,
        (Expected("TrainingLogSilent", "warning", 30),),
        120,
        {},
        {},
        (),
        extra_log,
    ),
    Fault(
        "one line says what is wrong",
        one_bad_line,
        (Expected("TrainingTroubleLine", "warning", 45),),
        120,
        {},
        {"inference": False},
        TELL_STEPS,
    ),
    Fault(
        "errors again and again",
        storm,
        (Expected("TrainingErrorStorm", "warning", 180),),
        300,
        ERRORS,
        {},
        TELL_STEPS,
        night=2,
    ),
    Fault(
        "one rank is slower than the others",
        rank_is_slow,
        (Expected("TrainingRankSlow", "warning", _rank),),
        1200,
        {},
        {**SHORT, "gpus": 4, "heartbeat": True, "inference": False},
        TELL_STEPS,
    ),
    Fault(
        "the emergency brake fires again and again",
        brake,
        (Expected("TrainingBrakeFiring", "critical", 30),),
        120,
        {},
        {"inference": False},
        TELL_STEPS,
        night=3,
    ),
)
