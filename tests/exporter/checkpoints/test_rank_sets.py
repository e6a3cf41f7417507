from __future__ import annotations

import pytest

from trainwarden_exporter.checkpoints.rank_sets import check_sets

MEGATRON = [
    f"mp_rank_{tensor:02}_{pipeline:03}/model_optim_rng.pt"
    for tensor in (0, 1)
    for pipeline in (0, 1)
]
DEEPSPEED = [
    *(f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)),
    "mp_rank_00_model_states.pt",
]
STAGE_3 = [
    *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)),
    *(f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in (0, 1)),
]
STORED = ["weights/.metadata", "weights/__0_0.distcp", "weights/__1_0.distcp"]


OF_A_LOOP = ["model.pt", "trainer_state.json"]
OF_TRANSFORMERS = [
    *("config.json", "generation_config.json", "model.safetensors", "training_args.bin"),
    *("optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt", "trainer_state.json"),
    *("tokenizer.json", "tokenizer.model", "vocab.txt", "README.md", "latest", "chat.jinja"),
]


def missing(names: list[str]) -> list[str]:
    return [damage.file for damage in check_sets(names, {})]


@pytest.mark.parametrize("names", [MEGATRON, DEEPSPEED, STAGE_3, STORED])
def test_whole_sets_are_not_accused(names: list[str]) -> None:
    assert missing(names) == []


@pytest.mark.parametrize("lost", range(len(MEGATRON)))
def test_a_rank_of_megatron_is_missing_by_tensor_and_pipeline(lost: int) -> None:
    assert len(missing(MEGATRON[:lost] + MEGATRON[lost + 1 :])) == 1


def test_the_ranks_of_one_pipeline_stage_may_be_all_that_a_node_has() -> None:
    assert missing(MEGATRON[::2]) == []


def test_the_weights_of_deepspeed_are_beside_the_first_optimizer_state() -> None:
    assert missing(DEEPSPEED[:-1]) == ["mp_rank_00_model_states.pt"]
    assert missing(STAGE_3[:2]) == ["mp_rank_00_model_states.pt"]


def test_another_node_of_deepspeed_has_no_weights() -> None:
    assert missing(["zero_pp_rank_2_mp_rank_00_optim_states.pt"]) == []


@pytest.mark.parametrize(
    "names",
    [
        OF_A_LOOP,
        [*OF_A_LOOP, "optimizer.pt"],
        [*OF_A_LOOP, "optimizer.pt", "scheduler.pt"],
        [*OF_A_LOOP, "config.json", "optimizer.pt"],
        [*OF_A_LOOP, "training_args.bin", "optimizer.pt"],
        ["trainer_state.json", "config.json", "model.safetensors", "optimizer.pt"],
        ["trainer_state.json", "config.json", "params/0"],
        ["trainer_state.json", "config.json", "weights.npz"],
        ["trainer_state.json", "optimizer.pt", "scheduler.pt"],
        OF_TRANSFORMERS,
        ["config.json", "model.safetensors", "training_args.bin", "trainer_state.json"],
    ],
)
def test_a_training_loop_of_ones_own_names_its_files_as_it_likes(names: list[str]) -> None:
    assert missing(names) == []


@pytest.mark.parametrize(
    ("lost", "accused"),
    [
        ("model.safetensors", "model.safetensors"),
        ("optimizer.pt", "optimizer.pt"),
        ("scheduler.pt", "scheduler.pt"),
        ("rng_state.pth", "rng_state.pth"),
    ],
)
def test_what_transformers_saves_together_is_missed(lost: str, accused: str) -> None:
    assert missing([name for name in OF_TRANSFORMERS if name != lost]) == [accused]


def test_stored_files_need_their_metadata() -> None:
    assert missing(STORED[1:]) == ["weights/.metadata"]
