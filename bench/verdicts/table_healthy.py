"""The healthy runs: what happens to each, and which alerts are then right."""

from __future__ import annotations

from verdicts.healthy import (
    Night,
    boxed_in,
    clock_back,
    clock_forward,
    container_recreated,
    deliberate_restart,
    deploy,
    exporter_restarts,
    keeps_state,
    lost_scrape,
    machine_stands_still,
    network_gap,
    nothing,
    prometheus_restarts,
    restart_in_an_update,
    server_restarts_alone,
    slow_disk_with_saves,
    study_ends,
    then_exporter_restarts,
    trainer_slow_steps,
    two_lost_scrapes,
)
from verdicts.healthy_use import (
    LONG_EVALUATION,
    SILENT,
    a_notebook_takes_a_gpu,
    ctrl_c,
    memory_breathes,
)

HALF = {
    "TrainingCheckpointIncomplete": "a save that the restart broke off stays half-written",
    "TrainingWaitingForServer": "its trainer waits until the servers have loaded",
}
UNSEEN = {"TrainingExporterDown": "nothing came from it for two minutes"}
UNSEEN["TrainingRemediatorDown"] = "nor from this"
FIRST = {"evaluation": 20.0}
"""A first long unreported evaluation rightly causes a warning; rules/tests assert that."""
SERVED = {"inference": True}
STEADY = ("areal", "prime_rl", "verl", "openrlhf", "slime", "nemo_rl", "torchtitan", "skyrl")

NIGHTS: tuple[Night, ...] = (
    *(Night(f"goes on ({number})", nothing) for number in range(1, 5)),
    Night("begins", nothing, young=True, needs=FIRST),
    Night("begins, and compiles for long", nothing, young=True, needs={**FIRST, "compile": 1300.0}),
    Night("finishes", nothing, steps_left=60, needs={"step": 15.0}),
    Night(
        "finishes, the exporter restarts",
        then_exporter_restarts,
        steps_left=20,
        needs={"step": 8.0},
        prepare=keeps_state,
        length=3600,
    ),
    Night(
        "finishes and its servers sleep",
        nothing,
        steps_left=40,
        needs={**SERVED, "sleeps": True, "step": 12.0},
        frameworks=("verl", "nemo_rl", "skyrl"),
        length=3600,
    ),
    Night("evaluates for long", nothing, needs={"evaluation": 500.0, "evaluate_every": 900.0}),
    Night(
        "begins, and soon evaluates for 40 minutes without a line",
        nothing,
        young=True,
        needs={
            "step": 12.0,
            "update": 2.0,
            "compile": 60.0,
            "inference": False,
            "saves": False,
            "evaluation": 2400.0,
            "evaluate_every": 7200.0,
            "silence_limit": None,
        },
        frameworks=("verl", "torchtitan", "areal"),
        true_alerts={"TrainingStepStalled/warning": "its first evaluation, which nothing reports"},
        length=4200,
    ),
    Night("saves for long", nothing, needs={"saves": True, "save": 400.0, "save_every": 900.0}),
    Night(
        "gets weights for long",
        nothing,
        needs={"update": 60.0, "step": 60.0},
        frameworks=("areal", "prime_rl", "slime", "nemo_rl", "skyrl"),
    ),
    Night("loses a scrape now and then", lost_scrape),
    Night("loses two scrapes in a row", two_lost_scrapes),
    Night("is out of reach for two minutes", network_gap, true_alerts=UNSEEN),
    Night("its clock is set forward", clock_forward, gap=True, needs={"step": 45.0}),
    Night("its clock is set back", clock_back),
    Night("its machine stands still", machine_stands_still, gap=True, needs={"step": 45.0}),
    Night("the exporter restarts twice", exporter_restarts, prepare=keeps_state),
    Night("Prometheus restarts", prometheus_restarts, gap=True),
    Night(
        "is restarted by an operator", deliberate_restart, true_alerts=HALF, needs={"search": False}
    ),
    Night(
        "is restarted in a weight update, and compiles for long",
        restart_in_an_update,
        true_alerts=HALF,
        needs={**SERVED, "sleeps": False, "compile": 1300.0, "step": 20.0, "update": 8.0},
        frameworks=STEADY[:6],
        length=3000,
    ),
    Night("is deployed again", deploy, true_alerts=HALF, needs={"search": False}),
    Night(
        "its container is replaced",
        container_recreated,
        true_alerts=HALF,
        needs={"container": True, "search": False},
    ),
    Night("takes longer and longer steps", trainer_slow_steps, frameworks=STEADY),
    Night("saves to a disk that is not fast", slow_disk_with_saves, needs={"probed": True}),
    Night("its memory comes and goes", memory_breathes, length=3600),
    Night("is a search that ends", study_ends, frameworks=("optuna",)),
    Night(
        "is a search of short trials",
        nothing,
        needs={"step": 11.0},
        frameworks=("optuna",),
        length=3600,
    ),
    Night(
        "is a search whose workers restart after so many trials",
        nothing,
        needs={"step": 11.0, "recycled_after": 440.0},
        frameworks=("optuna",),
        length=3600,
    ),
    Night(
        "its server restarts alone",
        server_restarts_alone,
        true_alerts={"TrainingWaitingForServer": "its trainer waits until it is back"},
        needs={**SERVED, "sleeps": False},
        frameworks=STEADY[:6],
    ),
    Night("another fills and empties its disk", boxed_in),
    Night(
        "saves once an hour and shows nothing else",
        nothing,
        needs=SILENT,
        frameworks=("trl", "torchtitan", "lightning", "megatron", "deepspeed"),
        length=10800,
    ),
    Night(
        "is a search of trials of hours",
        nothing,
        true_alerts={
            "TrainingStepStalled/warning": "how long its trials take is known only after several",
        },
        needs={"step": 9000.0, "recycled_after": None, "silence_limit": None},
        frameworks=("optuna",),
        length=10800,
    ),
    Night(
        "evaluates for forty minutes",
        nothing,
        needs=LONG_EVALUATION,
        frameworks=("openrlhf", "nemo_rl", "skyrl", "lightning"),
        length=5400,
    ),
    Night(
        "evaluates on its servers for forty minutes, and does not log it",
        nothing,
        true_alerts={
            "TrainingStepStalled": "a warning: an evaluation of unknown length is not logged",
            "TrainingCheckpointOverdue": "it saves nothing for as long",
            "TrainingGpuIdle": "the GPU of its trainer is idle for as long",
            "TrainingWeightUpdateSlow": "the update before it is the last that its log shows",
        },
        needs={**SERVED, **LONG_EVALUATION, "sleeps": False, "update": 2.0},
        frameworks=("areal", "prime_rl", "verl", "slime"),
        length=5400,
    ),
    Night(
        "has a notebook beside it",
        a_notebook_takes_a_gpu,
        true_alerts={"TrainingGpuHeldByLeftovers": "reported after ten minutes, and left alone"},
        needs={"gpus": 2},
        length=3600,
    ),
    Night(
        "is nothing but servers",
        nothing,
        needs={
            **SERVED,
            "trains": False,
            "producer": False,
            "saves": False,
            "search": False,
            "silence_limit": None,
        },
        frameworks=STEADY[:6],
        length=5400,
    ),
    Night(
        "ends by Ctrl-C",
        ctrl_c,
        true_alerts={
            "TrainingWorkerInterrupted": "its trainer is missing, and that is deliberate",
            "TrainingCheckpointIncomplete": HALF["TrainingCheckpointIncomplete"],
        },
        muted_alerts={
            "TrainingStepStalled": "the interruption explains it",
            "TrainingLogSilent": "the interruption explains it",
        },
        needs={"search": False},
        length=3600,
    ),
    Night(
        "has neither GPU nor server nor checkpoint",
        nothing,
        needs={
            "gpus": 0,
            "inference": False,
            "saves": False,
            "producer": False,
            "rollout_folder": False,
            "share_of_rollouts": 0.0,
            "update": 0.0,
        },
    ),
)
