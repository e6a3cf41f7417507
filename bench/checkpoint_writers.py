"""Writes small sound checkpoints with the real libraries, three of each layout.

python checkpoint_writers.py FOLDER    # with torch, safetensors, transformers and lightning

Each layout is in a folder of its framework's name. The Trainer of transformers, Lightning,
save_pretrained, torch.distributed.checkpoint and torch.save write the files; where a framework is
not installed, the names of its files and the keys of its states are those of its source.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import ModelCheckpoint
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

STEPS = (5, 10, 15)
RANKS = 4


def model(step: int) -> GPT2LMHeadModel:
    """A model whose weights differ a little from step to step."""
    torch.manual_seed(0)
    made = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    )
    torch.manual_seed(step)
    with torch.no_grad():
        for weights in made.parameters():
            weights.add_(torch.randn_like(weights) * 1e-3)
    return made


def states(step: int) -> dict[str, Any]:
    """The state of a trainer: weights, optimizer, random state and counters."""
    weights = model(step).state_dict()
    moments = {name: torch.randn_like(one) * 1e-4 for name, one in weights.items()}
    return {
        "model": weights,
        "optimizer": {"exp_avg": moments, "step": step},
        "rng": torch.get_rng_state(),
        "step": step,
    }


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def save(state: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def trl(folder: Path) -> None:
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 256, (64, 16))]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS[-1],
        save_steps=STEPS[0],
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=5,
    )
    Trainer(model(0), arguments, train_dataset=data).train()


class Module(lightning.LightningModule):  # type: ignore[misc] # not installed for the check
    """Learns nothing in particular."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"width": 128})
        self.layers = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Linear(128, 128))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.layers(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def lightning_(folder: Path) -> None:
    callback = ModelCheckpoint(every_n_train_steps=STEPS[0], save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=STEPS[-1],
        default_root_dir=str(folder),
        callbacks=[callback],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 128), batch_size=2))


def torchtitan(folder: Path) -> None:
    for step in STEPS:
        dcp.save(states(step), checkpoint_id=str(folder / f"checkpoint/step-{step}"))


def nemo_rl(folder: Path) -> None:
    for step in STEPS:
        entry = folder / f"step_{step}"
        writer = dcp.FileSystemWriter(str(entry / "policy/weights"), single_file_per_rank=False)
        dcp.save(states(step), storage_writer=writer)
        write_text(entry / "training_info.json", json.dumps({"step": step, "consumed": 10 * step}))
        write_text(
            entry / "config.yaml", "policy: {model_name: tiny}\ngrpo: {max_num_steps: 100}\n"
        )


def slime(folder: Path) -> None:
    for step in STEPS:
        entry = folder / f"iter_{step:07d}"
        dcp.save(states(step), checkpoint_id=str(entry))
        save({"args": {"tensor_model_parallel_size": 1}, "iteration": step}, entry / "common.pt")
        write_text(entry / "metadata.json", json.dumps({"sharded_backend": "torch_dist"}))
    write_text(folder / "latest_checkpointed_iteration.txt", str(STEPS[-1]))


def megatron(folder: Path) -> None:
    for step in STEPS:
        for rank in range(RANKS):
            path = folder / f"iter_{step:07d}/mp_rank_{rank // 2:02d}_{rank % 2:03d}"
            save({**states(step + rank), "iteration": step}, path / "model_optim_rng.pt")
    write_text(folder / "latest_checkpointed_iteration.txt", str(STEPS[-1]))


def _deepspeed(folder: Path) -> None:
    for step in STEPS:
        entry = folder / f"global_step{step}"
        counts = {"dp_world_size": RANKS, "mp_world_size": 1, "global_steps": step}
        module = {"module": model(step).state_dict(), **counts}
        save(module, entry / "mp_rank_00_model_states.pt")
        for rank in range(RANKS):
            name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
            save({"optimizer_state_dict": states(step + rank)["optimizer"]}, entry / name)
    write_text(folder / "latest", f"global_step{STEPS[-1]}")


def deepspeed(folder: Path) -> None:
    _deepspeed(folder)


def openrlhf(folder: Path) -> None:
    _deepspeed(folder / "_actor")


def _fsdp_ranks(entry: Path, step: int) -> None:
    for rank in range(RANKS):
        state = states(step + rank)
        for kind, part in (("model", "model"), ("optim", "optimizer"), ("extra_state", "rng")):
            save(state[part], entry / f"{kind}_world_size_{RANKS}_rank_{rank}.pt")
    write_text(entry / "huggingface/config.json", model(0).config.to_json_string())


def verl(folder: Path) -> None:
    for step in STEPS:
        _fsdp_ranks(folder / f"global_step_{step}/actor", step)
        save({"position": step}, folder / f"global_step_{step}/data.pt")
    write_text(folder / "latest_checkpointed_iteration.txt", str(STEPS[-1]))


def skyrl(folder: Path) -> None:
    for step in STEPS:
        _fsdp_ranks(folder / f"global_step_{step}/policy", step)
        save({"global_step": step}, folder / f"global_step_{step}/trainer_state.pt")
    write_text(folder / "latest_ckpt_global_step.txt", str(STEPS[-1]))


def areal(folder: Path) -> None:
    for step in STEPS:
        name = f"epoch0epochstep{step}globalstep{step}"
        entry = folder / "checkpoints/root/tiny/trial0/default" / name
        model(step).save_pretrained(entry, max_shard_size="200KB")
        write_text(entry / "tokenizer_config.json", json.dumps({"model_max_length": 64}))


LAYOUTS = {
    "trl": trl,
    "lightning": lightning_,
    "torchtitan": torchtitan,
    "nemo_rl": nemo_rl,
    "slime": slime,
    "megatron": megatron,
    "deepspeed": deepspeed,
    "openrlhf": openrlhf,
    "verl": verl,
    "skyrl": skyrl,
    "areal": areal,
}


def main() -> None:
    warnings.simplefilter("ignore")
    for name, write in LAYOUTS.items():
        write(Path(sys.argv[1]) / name)


if __name__ == "__main__":
    main()
