"""Trees of AReaL and of three versions of PRIME-RL, including those of nights 2 and 4."""

from __future__ import annotations

import json
from pathlib import Path

from tree_writing import (
    AGES,
    DCP,
    FRESH,
    HF,
    MINUTE,
    TOKENIZER,
    Saves,
    State,
    Tree,
    Written,
    newest_step,
    save,
)


def areal(path: Path, state: State) -> Written:
    """Night 2: `outputs/grpo`, one trial, steps counted from zero in names."""
    tree = Tree(path)
    trial = "root/gsm8k-grpo-full-local/trial0"
    steps = (1399, 1634, 1869)
    saves = Saves(
        f"checkpoints/{trial}/default",
        steps,
        lambda step: f"epoch{step // 935}epochstep{step % 935}globalstep{step}",
        (*HF, *TOKENIZER),
        half=3,
    )
    complete, incomplete = save(tree, saves, state)
    recorded = steps[2] if len(complete) == 3 or state is State.ROTATED else steps[1]
    age = AGES[steps.index(recorded)] - MINUTE
    tree.files(f"checkpoints/{trial}/default/recover_checkpoint", DCP, age=age)
    record = {
        "epoch": recorded // 935,
        "epoch_step": recorded % 935,
        "global_step": recorded,
        "steps_per_epoch": 935,
    }
    info = f"checkpoints/{trial}/recover_info"
    tree.file(f"{info}/step_info.json", age=age, text=json.dumps(record, indent=4))
    for name in ("saver_info", "evaluator_info", "stats_logger_info", "checkpoint_info"):
        tree.file(f"{info}/{name}.json", age=age, text="{}")
    tree.file(f"{info}/dataloader_info.pkl", age=age - 1)
    copy = f"logs/{trial}/wandb/run-20261121_113702-gsm8k_trial0_train/files/output.log"
    for name in ("trainer.log", "llm_server.log"):
        tree.file(f"logs/{trial}/{name}", age=FRESH)
    tree.file(copy, age=FRESH)
    tree.settle()
    return Written(
        path,
        {"user": "root", "experiment": "gsm8k-grpo-full-local", "trial": "trial0"},
        {"default": complete},
        {"default": incomplete},
        step=newest_step(saves, complete) + 1,
        recovery=recorded + 1,
        logs={
            "trainer": (f"logs/{trial}/trainer.log",),
            "wandb": (copy,),
            "inference": (f"logs/{trial}/llm_server.log",),
        },
    )


def prime_rl(path: Path, state: State) -> Written:
    """Since August 2026, with batches in files; `path` is the run's folder."""
    tree = Tree(path)
    saves = Saves(
        "checkpoints",
        (100, 200, 300),
        lambda step: f"step_{step}",
        ("orchestrator/progress.pt", *(f"trainer/{name}" for name in DCP)),
        half=2,
    )
    complete, incomplete = save(tree, saves, state)
    for step, age in ((298, 90.0), (299, 60.0), (300, 30.0)):
        tree.file(f"rollouts/step_{step}/train/all/traces.jsonl", age=age + 5)
        tree.file(f"rollouts/step_{step}/train/effective/traces.jsonl", age=age + 4)
        tree.files(f"rollouts/step_{step}", ("rank_0.bin", "rank_1.bin"), age=age)
    tree.file("rollouts/step_301/train/all/traces.jsonl", age=FRESH)
    tree.files("rollouts/step_301", ("rank_0.bin", "rank_1.bin.tmp"), age=FRESH)
    for step, age in ((298, 65.0), (299, 35.0)):
        tree.files(f"broadcasts/step_{step}", (*HF, "STABLE"), age=age)
    tree.files("broadcasts/step_300", HF, age=FRESH)
    for attempt, age in ((1, 100 * MINUTE), (2, FRESH)):
        for name in ("trainer", "orchestrator", "inference"):
            tree.file(f"logs/attempt_{attempt}/{name}.log", age=age)
    (path / "logs/latest").symlink_to("attempt_2")
    tree.settle()
    return Written(
        path,
        {"run": ""},
        {"default": complete},
        {"default": incomplete},
        step=newest_step(saves, complete),
        rollouts={
            "batches": ("step_298", "step_299", "step_300"),
            "traces": ("step_298", "step_299", "step_300"),
            "broadcasts": ("step_298", "step_299"),
        },
        incomplete_rollouts={
            "batches": ("step_301",),
            "traces": ("step_301",),
            "broadcasts": ("step_300",),
        },
        logs={
            name: (f"logs/latest/{name}.log",) for name in ("trainer", "orchestrator", "inference")
        },
    )


def prime_rl_0_8(path: Path, state: State) -> Written:
    """From January to August 2026: the orchestrator's half is in `run_default`."""
    tree = Tree(path)
    saves = Saves(
        "wordle/checkpoints",
        (100, 200, 300),
        lambda step: f"step_{step}",
        tuple(f"trainer/{name}" for name in DCP),
        half=1,
    )
    complete, incomplete = save(tree, saves, state)
    for step, age in zip(saves.steps, AGES, strict=True):
        tree.file(f"wordle/run_default/checkpoints/step_{step}/orchestrator/progress.pt", age=age)
    tree.files("wordle/weights/step_200", (*HF, "STABLE"), age=AGES[1])
    tree.files("wordle/weights/step_300", HF, age=AGES[2])
    tree.file("wordle/run_default/rollouts/step_300/train_rollouts.bin", age=30)
    tree.file("wordle/run_default/rollouts/step_301/train_rollouts.bin.tmp", age=FRESH)
    tree.files("wordle/rollouts/step_300", ("rank_0.bin", "rank_1.bin"), age=25)
    for name in ("trainer", "orchestrator", "inference"):
        tree.file(f"wordle/logs/{name}.log", age=FRESH)
    tree.settle()
    return Written(
        path,
        {"run": "wordle"},
        {
            "default": complete,
            "orchestrator": ("step_100", "step_200", "step_300"),
            "weights": ("step_200",),
        },
        {"default": incomplete, "weights": ("step_300",)},
        step=newest_step(saves, complete),
        rollouts={"batches": ("step_300",), "unpacked": ("step_300",)},
        incomplete_rollouts={"unpacked": ("step_301",)},
        logs={
            name: (f"wordle/logs/{name}.log",) for name in ("trainer", "orchestrator", "inference")
        },
    )


def prime_rl_0_2(path: Path, state: State) -> Written:
    """Night 4, of November 2025: `/outputs/<experiment>/rollouts/step_N/rank_R.pt`, four ranks."""
    tree = Tree(path)
    run = "wordle-rl-4xa100-80gb"
    saves = Saves(
        f"{run}/checkpoints",
        (100, 200, 300),
        lambda step: f"step_{step}",
        tuple(f"trainer/{name}" for name in DCP),
        half=2,
    )
    complete, incomplete = save(tree, saves, state)
    ranks = tuple(f"rank_{rank}.pt" for rank in range(4))
    tree.files(f"{run}/rollouts/step_41", ranks, age=70)
    tree.files(f"{run}/rollouts/step_42", ranks, age=40)
    tree.files(f"{run}/rollouts/step_43", (*ranks[:2], "rank_2.tmp"), age=FRESH)
    copies = (f"{run}/logs/trainer.stdout", f"{run}/logs/trainer/rank_0.log")
    for name in (*copies, f"{run}/logs/orchestrator.stdout", f"{run}/logs/inference.stdout"):
        tree.file(name, age=FRESH)
    tree.settle()
    return Written(
        path,
        {"run": run},
        {"default": complete},
        {"default": incomplete},
        step=newest_step(saves, complete),
        rollouts={"batches": ("step_41", "step_42")},
        incomplete_rollouts={"batches": ("step_43",)},
        logs={
            "trainer": copies[:1],
            "ranks": copies[1:],
            "orchestrator": (f"{run}/logs/orchestrator.stdout",),
            "inference": (f"{run}/logs/inference.stdout",),
        },
    )
