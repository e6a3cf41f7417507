"""A Trainer of Transformers. Arguments: steps, seconds per step."""

from __future__ import annotations

import torch
from tiny import ARGUMENTS, Truth, model_and_tokenizer, newest_checkpoint
from transformers import Trainer, TrainingArguments
from truth import EVALUATION_BATCHES, beat_callbacks

model, _ = model_and_tokenizer()
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 256, (256, 16))]
arguments = TrainingArguments(**ARGUMENTS, eval_strategy="steps", eval_steps=60)
Trainer(
    model,
    arguments,
    train_dataset=data,
    eval_dataset=data[:EVALUATION_BATCHES],
    callbacks=[Truth(), *beat_callbacks("transformers")],
).train(resume_from_checkpoint=newest_checkpoint())
