"""A Trainer of Lightning. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
import time

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from truth import beat_callbacks, record

steps, seconds = int(sys.argv[1]), float(sys.argv[2])


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Truth(Callback):
    def on_train_batch_end(self, trainer, *args):
        time.sleep(seconds)
        record("step", step=trainer.global_step)


data = torch.utils.data.DataLoader(torch.randn(4000, 8), batch_size=2)
saver = ModelCheckpoint(dirpath="out", filename="{step}", every_n_train_steps=10, save_top_k=-1)
callbacks = [Truth(), saver, *beat_callbacks("lightning")]
trainer = lightning.Trainer(
    max_steps=steps,
    callbacks=callbacks,
    accelerator="cpu",
    log_every_n_steps=5,
)
trainer.fit(Model(), data)
