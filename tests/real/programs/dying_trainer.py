"""A seeded Trainer of Transformers that dies once in the middle of a save.

Arguments: folder, steps, step of the save that it dies in, checkpoint to resume from or `none`.
It waits before that step until there is a file `go`, and writes what it computed to truth.jsonl.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

FOLDER, STEPS, DIES_AT, CHECKPOINT = (
    Path(sys.argv[1]),
    int(sys.argv[2]),
    int(sys.argv[3]),
    sys.argv[4],
)


def record(**event: object) -> None:
    with (FOLDER / "truth.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


class Truth(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == DIES_AT:
            while not (FOLDER / "go").exists():
                time.sleep(0.1)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            record(step=state.global_step, loss=logs["loss"], grad_norm=logs["grad_norm"])


class DyingTrainer(Trainer):
    def _save_optimizer_and_scheduler(self, output_dir):
        super()._save_optimizer_and_scheduler(output_dir)
        died = FOLDER / "died"
        if self.state.global_step == DIES_AT and not died.exists():
            died.touch()
            file = Path(output_dir) / "optimizer.pt"
            os.truncate(file, file.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


torch.manual_seed(0)
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (256, 16))]
arguments = TrainingArguments(
    output_dir=str(FOLDER / "out"),
    max_steps=STEPS,
    per_device_train_batch_size=2,
    logging_steps=1,
    save_steps=10,
    report_to=[],
    use_cpu=True,
    seed=7,
)
trainer = DyingTrainer(model, arguments, train_dataset=data, callbacks=[Truth()])
trainer.train(resume_from_checkpoint=None if CHECKPOINT == "none" else CHECKPOINT)
weights = hashlib.sha256()
for name, values in sorted(model.state_dict().items()):
    weights.update(name.encode() + values.numpy().tobytes())
record(weights=weights.hexdigest(), resumed_from=CHECKPOINT)
