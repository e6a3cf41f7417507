"""A language model and a tokenizer of a few kilobytes, random, without any download; its truth."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from truth import evaluation_batch, poison, record, step_done

STEPS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
ARGUMENTS = {
    "output_dir": "out",
    "max_steps": STEPS,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 1,
    "logging_steps": 5,
    "save_steps": 10,
    "report_to": [],
    "use_cpu": True,
}


class Truth(TrainerCallback):
    batches = 0

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        poison(model)

    def on_step_end(self, args, state, control, **kwargs):
        step_done(state.global_step, SECONDS)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            record("loss", loss=float(logs["loss"]))

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += 1
        evaluation_batch(self.batches)

    def on_evaluate(self, args, state, control, **kwargs):
        self.batches = 0

    def on_save(self, args, state, control, **kwargs):
        record("saved", step=state.global_step)


def model_and_tokenizer():
    vocabulary = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    for word in ("<unk>", "<s>", "</s>", "<pad>"):
        vocabulary[word] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        pad_token_id=fast.pad_token_id,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    return LlamaForCausalLM(config), fast


def newest_checkpoint():
    """Returns the newest complete checkpoint; an operator deletes what a kill left incomplete."""
    complete = sorted(Path("out").glob("checkpoint-*/trainer_state.json"), key=_step)
    return str(complete[-1].parent) if complete else None


def _step(path: Path) -> int:
    return int(path.parent.name.rpartition("-")[2])
