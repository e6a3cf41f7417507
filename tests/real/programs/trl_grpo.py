"""Reinforcement learning with TRL and a reward function. Arguments: steps, seconds per step."""

from __future__ import annotations

from datasets import Dataset
from tiny import ARGUMENTS, Truth, model_and_tokenizer, newest_checkpoint
from trl import GRPOConfig, GRPOTrainer
from truth import EVALUATION_BATCHES


def reward(completions, **kwargs):
    return [float(sum(map(ord, text)) % 10) for text in completions]


model, tokenizer = model_and_tokenizer()
prompts = Dataset.from_dict({"prompt": [f"what is {i}?" for i in range(256)]})
arguments = GRPOConfig(
    **ARGUMENTS | {"per_device_eval_batch_size": 2},
    eval_strategy="steps",
    eval_steps=60,
    num_generations=2,
    max_completion_length=4,
    bf16=False,
)
GRPOTrainer(
    model,
    reward,
    args=arguments,
    train_dataset=prompts,
    eval_dataset=prompts.select(range(EVALUATION_BATCHES)),
    processing_class=tokenizer,
    callbacks=[Truth()],
).train(resume_from_checkpoint=newest_checkpoint())
