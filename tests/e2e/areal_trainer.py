"""A trainer that leaves the traces AReaL leaves, for tests: folders, recovery record, log.

    areal_trainer.py --root outputs/grpo --server http://127.0.0.1:13231 --copy wandb/output.log

It goes on from the recovery record. Each step takes a completion of the server. A
refused request is repeated for ever, and each refusal is a line of the log and of its copy. With
`--loses-heart` the first refusal is logged once for each of 64 requests in flight; then the trainer
sends no more requests, as a client whose connection pool is dead.

AReaL counts steps from zero in names and records, and from one in its log.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import TextIO

USER, EXPERIMENT, TRIAL = "root", "gsm8k-grpo-full-local", "trial0"
STEPS_PER_EPOCH = 935
EPOCHS = 5
WEIGHTS_BYTES = 64 << 10
IN_FLIGHT = 64


def _weights() -> bytes:
    """One tensor of random bytes, in the format of safetensors."""
    tensor = {"dtype": "U8", "shape": [WEIGHTS_BYTES], "data_offsets": [0, WEIGHTS_BYTES]}
    header = json.dumps({"w": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + os.urandom(WEIGHTS_BYTES)


class Traces:
    """What the trainer writes below `root`."""

    def __init__(self, root: Path) -> None:
        trial = root / "checkpoints" / USER / EXPERIMENT / TRIAL
        self.checkpoints = trial / "default"
        self.recovery = trial / "recover_info"
        self.recovery_checkpoint = self.checkpoints / "recover_checkpoint"
        self.log = root / "logs" / USER / EXPERIMENT / TRIAL / "trainer.log"

    def save(self, step: int, *, at: float | None = None) -> None:
        """Write the checkpoint and the record of zero-based `step`, as if that was done at `at`."""
        epoch, within = divmod(step, STEPS_PER_EPOCH)
        folder = self.checkpoints / f"epoch{epoch}epochstep{within}globalstep{step}"
        record = {
            "epoch": epoch,
            "epoch_step": within,
            "global_step": step,
            "steps_per_epoch": STEPS_PER_EPOCH,
        }
        files = {
            folder / "model.safetensors": _weights(),
            folder / "config.json": b"{}",
            folder / "tokenizer_config.json": b"{}",
            folder / "tokenizer.json": b"{}",
            self.recovery_checkpoint / "__0_0.distcp": os.urandom(WEIGHTS_BYTES),
            self.recovery_checkpoint / ".metadata": pickle.dumps({}),
            self.recovery / "step_info.json": json.dumps(record).encode(),
            self.recovery / "saver_info.json": b"{}",
            self.recovery / "evaluator_info.json": b"{}",
            self.recovery / "stats_logger_info.json": b"{}",
            self.recovery / "checkpoint_info.json": b"{}",
            self.recovery / "dataloader_info.pkl": pickle.dumps({}),
        }
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if at is not None:
                os.utime(path, (at, at))

    def recorded(self) -> int:
        """The zero-based step that the record names; -1 when there is none."""
        try:
            record = json.loads((self.recovery / "step_info.json").read_bytes())
        except FileNotFoundError:
            return -1
        return int(record["global_step"])


class Voice:
    """Writes lines as AReaL does, to the log and to the copies of it."""

    def __init__(self, files: list[TextIO]) -> None:
        self._files = files

    def say(self, logger: str, level: str, message: str) -> None:
        moment = datetime.now().astimezone().strftime("%Y%m%d-%H:%M:%S.%f")[:-3]
        self._write(f"\x1b[32m(AReaL) {moment} {logger} {level}: {message}\x1b[0m\n")

    def tell(self, numbers: Mapping[str, float]) -> None:
        """The table that follows a step."""
        self.say("StatsLogger", "INFO", "Stats (1/1):")
        for name, number in numbers.items():
            self._write(f"│ {name:<32} │ {number:.4e} │\n")

    def _write(self, line: str) -> None:
        for file in self._files:
            file.write(line)
            file.flush()


@contextmanager
def opened(paths: list[Path]) -> Iterator[list[TextIO]]:
    files: list[TextIO] = []
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.append(path.open("a", encoding="utf-8"))
        yield files
    finally:
        for file in files:
            file.close()


def completed(server: str, api: str) -> None:
    """Have one completion, in SGLang's own form or in OpenAI's. Raises OSError."""
    body: dict[str, object] = {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 4}}
    body |= {"model": "tiny", "prompt": "1 + 1 =", "max_tokens": 4}
    request = urllib.request.Request(  # noqa: S310 - on loopback
        f"{server}{api}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310 - as above
        answer.read()


def await_server(server: str, api: str, end: Event) -> None:
    """As a launcher does, start nothing before the server can be had."""
    while not end.is_set():
        try:
            completed(server, api)
        except OSError:
            end.wait(0.2)
        else:
            return


def refused(error: OSError, server: str) -> str:
    """The line that AReaL's client logs."""
    host, _, port = server.removeprefix("http://").partition(":")
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    number = getattr(cause, "errno", None)
    return f"ConnectionRefusedError({number}, \"Connect call failed ('{host}', {port})\")"


def step_info(step: int) -> str:
    """How AReaL prints a zero-based step; of a recovery, the next one."""
    epoch, within = divmod(step, STEPS_PER_EPOCH)
    return (
        f"StepInfo(epoch={epoch}, epoch_step={within}, global_step={step}, "
        f"steps_per_epoch={STEPS_PER_EPOCH})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--api", default="/generate")
    parser.add_argument("--copy", type=Path, action="append", default=[])
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--loses-heart", action="store_true")
    parser.add_argument("--tells-numbers", action="store_true", help="loss and reward of each step")
    parser.add_argument("--longest-seconds", type=float, default=900, help="then it ends")
    options = parser.parse_args()
    traces, end, last = Traces(options.root), Event(), time.monotonic() + options.longest_seconds
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    with opened([traces.log, *options.copy]) as files:
        voice = Voice(files)
        step = traces.recorded()
        if step >= 0:
            voice.say("RecoverHandler", "INFO", f"Recovering from {step_info(step + 1)}.")
        await_server(options.server, options.api, end)
        lost = False
        while not end.is_set() and time.monotonic() < last:
            if lost:
                end.wait(1)
                continue
            try:
                completed(options.server, options.api)
            except OSError as error:
                lost = options.loses_heart
                for _ in range(IN_FLIGHT if lost else 1):
                    voice.say("RemoteInfEngine", "ERROR", refused(error, options.server))
                end.wait(options.step_seconds)
                continue
            if end.wait(options.step_seconds):
                break
            step += 1
            epoch, within = divmod(step, STEPS_PER_EPOCH)
            if (step + 1) % options.save_every == 0:
                traces.save(step)
            voice.say(
                "StatsLogger",
                "INFO",
                f"Epoch {epoch + 1}/{EPOCHS} Step {within + 1}/{STEPS_PER_EPOCH} "
                f"Train step {step + 1}/{EPOCHS * STEPS_PER_EPOCH} done.",
            )
            if options.tells_numbers:
                done = step / (EPOCHS * STEPS_PER_EPOCH)
                voice.tell(
                    {
                        "ppo_actor/task_reward/avg": 0.2 + 0.6 * done,
                        "ppo_actor/update/actor_loss/avg": 1 - done,
                        "ppo_actor/update/grad_norm": 0.1,
                    }
                )
    sys.exit(0)


if __name__ == "__main__":
    main()
