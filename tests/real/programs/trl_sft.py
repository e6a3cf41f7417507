"""Supervised fine-tuning with TRL. Arguments: steps, seconds per step."""

from __future__ import annotations

from datasets import Dataset
from tiny import ARGUMENTS, Truth, model_and_tokenizer, newest_checkpoint
from trl import SFTConfig, SFTTrainer
from truth import EVALUATION_BATCHES, beat_callbacks

model, tokenizer = model_and_tokenizer()
texts = Dataset.from_dict({"text": [f"the answer to {i} is {i * i}" for i in range(256)]})
arguments = SFTConfig(**ARGUMENTS, eval_strategy="steps", eval_steps=60, bf16=False)
SFTTrainer(
    model,
    args=arguments,
    train_dataset=texts,
    eval_dataset=texts.select(range(EVALUATION_BATCHES)),
    processing_class=tokenizer,
    callbacks=[Truth(), *beat_callbacks("transformers")],
).train(resume_from_checkpoint=newest_checkpoint())
