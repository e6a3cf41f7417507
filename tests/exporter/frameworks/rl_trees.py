"""Trees of verl, OpenRLHF, slime, NeMo-RL and SkyRL."""

from __future__ import annotations

from pathlib import Path

from tree_writing import AGES, DCP, HF, Saves, State, Tree, Written, finish, newest_step, save


def verl(path: Path, state: State) -> Written:
    """`path` is the folder `checkpoints` of the working directory."""
    tree = Tree(path)
    folder = "gsm8k/qwen_grpo"
    shards = ("model", "optim", "extra_state")
    saves = Saves(
        folder,
        (10, 20, 30),
        lambda step: f"global_step_{step}",
        (
            *(f"actor/{kind}_world_size_2_rank_{rank}.pt" for kind in shards for rank in (0, 1)),
            "actor/fsdp_config.json",
            "actor/huggingface/config.json",
            "data.pt",
        ),
        half=3,
        rewritable=False,
    )
    complete, incomplete = save(tree, saves, state)
    if state is State.ROTATED:  # verl deletes only the actors
        for step in saves.steps[:2]:
            tree.file(f"{folder}/global_step_{step}/data.pt", age=AGES[0])
        incomplete = ("global_step_10", "global_step_20")
    newest = newest_step(saves, complete)
    age = AGES[saves.steps.index(newest)]
    tree.file(f"{folder}/latest_checkpointed_iteration.txt", age=age, text=str(newest))
    return finish(
        tree, saves, (complete, incomplete), {"project": "gsm8k", "experiment": "qwen_grpo"}
    )


def openrlhf(path: Path, state: State) -> Written:
    """`path` is ckpt.path."""
    tree = Tree(path)
    saves = Saves(
        "_actor",
        (20, 40, 60),
        lambda step: f"global_step{step}",
        (
            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
            "zero_pp_rank_0_mp_rank_00_model_states.pt",
            "metric.json",
        ),
        half=2,
        rewritable=False,
    )
    complete, incomplete = save(tree, saves, state)
    newest = newest_step(saves, complete)
    tree.file("_actor/latest", age=AGES[saves.steps.index(newest)], text=f"global_step{newest}")
    tree.file("_actor/zero_to_fp32.py", age=AGES[0])
    tree.files("global_step20_hf", HF, age=AGES[0])
    return finish(tree, saves, (complete, incomplete), {"run": ""}, layout="actor")


def slime(path: Path, state: State) -> Written:
    """`path` is the folder of `--save`; rollouts are counted from zero."""
    tree = Tree(path)
    saves = Saves(
        ".",
        (99, 199, 299),
        lambda step: f"iter_{step:07d}",
        ("common.pt", *DCP[:2], ".metadata", "metadata.json"),
        half=2,
        rewritable=False,
    )
    complete, incomplete = save(tree, saves, state)
    newest = newest_step(saves, complete)
    age = AGES[saves.steps.index(newest)]
    tree.file("latest_checkpointed_iteration.txt", age=age, text=str(newest))
    tree.file(f"rollout/global_dataset_state_dict_{newest}.pt", age=age)
    return finish(tree, saves, (complete, incomplete), {"run": ""}, log="job.log", step_offset=1)


def nemo_rl(path: Path, state: State) -> Written:
    """`path` is the folder `results`, which contains one folder per run."""
    tree = Tree(path)
    saves = Saves(
        "grpo",
        (10, 20, 30),
        lambda step: f"step_{step}",
        (
            "training_info.json",
            "config.yaml",
            "policy/weights/model/shard-00001-model-00001-of-00001.safetensors",
            "policy/optimizer/optim/__0_0.distcp",
            "policy/optimizer/optim/.metadata",
            "train_dataloader.pt",
        ),
        half=3,
        unfinished=lambda step: f"tmp_step_{step}",
    )
    saved = save(tree, saves, state)
    return finish(tree, saves, saved, {"run": "grpo"})


def skyrl(path: Path, state: State) -> Written:
    """`path` is trainer.ckpt_path."""
    tree = Tree(path)
    saves = Saves(
        ".",
        (10, 20, 30),
        lambda step: f"global_step_{step}",
        (
            "policy/model_world_size_2_rank_0.pt",
            "policy/model_world_size_2_rank_1.pt",
            "policy/fsdp_config.json",
            "data.pt",
            "trainer_state.pt",
        ),
        half=2,
        rewritable=False,
    )
    complete, incomplete = save(tree, saves, state)
    newest = newest_step(saves, complete)
    age = AGES[saves.steps.index(newest)]
    tree.file("latest_ckpt_global_step.txt", age=age, text=str(newest))
    return finish(tree, saves, (complete, incomplete), {"run": ""})
