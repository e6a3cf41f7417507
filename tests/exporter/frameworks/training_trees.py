"""Trees of Transformers, torchtitan, Lightning, Optuna, Ray Train, Megatron-LM, DeepSpeed."""

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
    finish,
    newest_step,
    save,
)


def trl(path: Path, state: State) -> Written:
    """`path` is output_dir."""
    tree = Tree(path)
    saves = Saves(
        ".",
        (500, 1000, 1500),
        lambda step: f"checkpoint-{step}",
        (*HF, "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "trainer_state.json"),
        half=5,
        rewritable=False,
    )
    saved = save(tree, saves, state)
    for step in saves.steps:
        state_file = path / f"checkpoint-{step}/trainer_state.json"
        if state_file.exists():
            _trainer_state(tree, f"checkpoint-{step}", step, age=AGES[saves.steps.index(step)])
    if state is State.FINISHED:
        tree.files(".", (*HF, *TOKENIZER, "training_args.bin"), age=5 * MINUTE)
        _trainer_state(tree, ".", 1500, age=5 * MINUTE)
    return finish(tree, saves, saved, {"run": ""})


def _trainer_state(tree: Tree, folder: str, step: int, *, age: float) -> None:
    state = {
        "best_model_checkpoint": None,
        "epoch": step / 500,
        "global_step": step,
        "log_history": [{"loss": 0.5, "step": step}],
        "max_steps": 1500,
    }
    tree.file(f"{folder}/trainer_state.json", age=age, text=json.dumps(state, indent=2))


def torchtitan(path: Path, state: State) -> Written:
    """`path` is job.dump_folder."""
    tree = Tree(path)
    saves = Saves("checkpoint", (500, 1000, 1500), lambda step: f"step-{step}", DCP, half=2)
    saved = save(tree, saves, state)
    return finish(tree, saves, saved, {"run": "checkpoint"}, log="logs/train.log")


def lightning(path: Path, state: State) -> Written:
    """`path` is default_root_dir; a checkpoint is one file."""
    tree = Tree(path)
    folder = "lightning_logs/version_0"
    names = [f"epoch={epoch}-step={1000 * (epoch + 1)}.ckpt" for epoch in range(3)]
    ages = dict(zip(names, AGES, strict=True))
    if state is State.ROTATED:
        ages = {names[2]: AGES[2]}
    elif state in (State.HALF_WRITTEN, State.REWRITTEN):
        ages[names[2]] = FRESH
    for name, age in ages.items():
        tree.file(f"{folder}/checkpoints/{name}", age=age)
    tree.file(f"{folder}/checkpoints/last.ckpt", age=AGES[2])
    rows = "".join(f"{epoch},{0.5 / (epoch + 1)},{1000 * (epoch + 1) - 1}\n" for epoch in range(3))
    tree.file(f"{folder}/metrics.csv", age=FRESH, text=f"epoch,loss,step\n{rows}")
    tree.file("train.log", age=FRESH)
    tree.settle()
    complete = tuple(name for name, age in ages.items() if age > FRESH)
    return Written(
        path,
        {"logger": "lightning_logs", "version": "version_0"},
        {"default": complete},
        {"default": tuple(name for name, age in ages.items() if age == FRESH)},
        step=1000 * (names.index(complete[-1]) + 1),
        logs={"trainer": ("train.log",)},
    )


def optuna(path: Path, _state: State) -> Written:
    """A study in a journal, with two workers."""
    tree = Tree(path)
    tree.file("journal.log", age=FRESH)
    for worker in (0, 1):
        tree.file(f"logs/worker-{worker}.log", age=FRESH)
    tree.settle()
    return Written(
        path,
        logs={"workers": ("logs/worker-0.log", "logs/worker-1.log"), "journal": ("journal.log",)},
    )


def ray_train(path: Path, state: State) -> Written:
    """`path` is storage_path; names contain a time and no step."""
    tree = Tree(path)
    names = [f"checkpoint_2026-08-21_{hour}-00-00.123456" for hour in (10, 11, 12)]
    kept = names[2:] if state is State.ROTATED else names
    half = state in (State.HALF_WRITTEN, State.REWRITTEN)
    listed = tuple(kept[:-1] if half else kept)
    for name in listed:
        tree.files(f"grpo/{name}", ("model.pt", "optimizer.pt"), age=AGES[names.index(name)])
    if half:
        tree.file(f"grpo/{names[2]}/model.pt", age=FRESH)
    results = [{"checkpoint_dir_name": name, "metrics": {"loss": 0.5}} for name in listed]
    snapshot = json.dumps({"checkpoint_results": results})
    tree.file("grpo/checkpoint_manager_snapshot.json", age=AGES[2], text=snapshot)
    tree.file("grpo/.validate_storage_marker", age=AGES[0])
    tree.file("driver.log", age=FRESH)
    tree.settle()
    return Written(
        path,
        {"run": "grpo"},
        {"default": listed},
        {"default": (names[2],) if half else ()},
        logs={"driver": ("driver.log",)},
    )


def megatron(path: Path, state: State) -> Written:
    """`path` is the folder of `--save`, which slime's looks like but for its data."""
    tree = Tree(path)
    files = ("common.pt", *DCP[:2], ".metadata", "metadata.json")
    saves = Saves(
        ".", (500, 1000, 1500), lambda step: f"iter_{step:07d}", files, half=2, rewritable=False
    )
    saved = save(tree, saves, state)
    newest = newest_step(saves, saved[0])
    tracker = "latest_checkpointed_iteration.txt"
    tree.file(tracker, age=AGES[saves.steps.index(newest)], text=str(newest))
    return finish(tree, saves, saved, {"run": ""})


def deepspeed(path: Path, state: State) -> Written:
    """`path` is the folder above save_dir; the shards of two ranks."""
    tree = Tree(path)
    saves = Saves(
        "ckpt",
        (100, 200, 300),
        lambda step: f"global_step{step}",
        (
            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
            "mp_rank_00_model_states.pt",
        ),
        half=1,
        rewritable=False,
    )
    saved = save(tree, saves, state)
    newest = newest_step(saves, saved[0])
    tree.file("ckpt/latest", age=AGES[saves.steps.index(newest)], text=f"global_step{newest}")
    tree.file("ckpt/zero_to_fp32.py", age=AGES[0])
    return finish(tree, saves, saved, {"run": "ckpt"})
