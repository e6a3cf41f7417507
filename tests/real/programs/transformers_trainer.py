"""A Trainer of Transformers with a tiny random model. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from truth import beat_callbacks, record

steps, seconds = int(sys.argv[1]), float(sys.argv[2])


class Truth(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(seconds)
        record("step", step=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            record("loss", loss=float(logs["loss"]))

    def on_save(self, args, state, control, **kwargs):
        record("save_end", step=state.global_step)


config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
)
tokens = torch.randint(0, 64, (256, 16))
data = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    output_dir="out",
    max_steps=steps,
    per_device_train_batch_size=2,
    logging_steps=5,
    save_steps=10,
    report_to=[],
    use_cpu=True,
)
Trainer(
    LlamaForCausalLM(config),
    arguments,
    train_dataset=data,
    callbacks=[Truth(), *beat_callbacks("transformers")],
).train()
