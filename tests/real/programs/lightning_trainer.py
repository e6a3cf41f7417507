"""A Trainer of Lightning. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from truth import EVALUATION_BATCHES, beat_callbacks, evaluation_batch, poison, record, step_done

steps, seconds = int(sys.argv[1]), float(sys.argv[2])


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch):
        self.log("val_loss", self.layer(batch).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)


class Truth(Callback):
    def on_train_batch_start(self, trainer, model, *args):
        poison(model)

    def on_train_batch_end(self, trainer, *args):
        step_done(trainer.global_step, seconds)
        if "loss" in trainer.logged_metrics:
            record("loss", loss=float(trainer.logged_metrics["loss"]))

    def on_validation_batch_end(self, trainer, model, outputs, batch, number, *args):
        if not trainer.sanity_checking:
            evaluation_batch(number)


class Trainer(lightning.Trainer):
    def save_checkpoint(self, *args, **kwargs):
        super().save_checkpoint(*args, **kwargs)
        record("saved", step=self.global_step)


def batches(count):
    return torch.utils.data.DataLoader(torch.randn(count * 2, 8), batch_size=2)


found = Path("lightning_logs").glob("version_*/checkpoints/step=*.ckpt")
saved = sorted(found, key=lambda one: int(one.stem.rpartition("=")[2]))
saver = ModelCheckpoint(filename="{step}", every_n_train_steps=10, save_top_k=-1)
trainer = Trainer(
    max_steps=steps,
    callbacks=[Truth(), saver, *beat_callbacks("lightning")],
    accelerator="cpu",
    logger=CSVLogger(".", flush_logs_every_n_steps=10),
    log_every_n_steps=5,
    val_check_interval=60,
)
trainer.fit(
    Model(),
    batches(4000),
    batches(EVALUATION_BATCHES),
    ckpt_path=str(saved[-1]) if saved else None,
)
