"""The folders that the five nights left behind, built from the text of the reports.

Lines in quotes of a report stand here as they are; what surrounds them is what these programs
print around such lines. Times are those of the reports, in UTC.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

REFUSED = "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")"
ALREADY_EXISTS = "fatal: destination path 'AReaL' already exists and is not an empty directory."
BUSY = "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
WAITING = "Waiting for training batch to arrive"


def at(text: str) -> float:
    """`2025-11-12 05:04:00`, in UTC, as Unix seconds."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


def stamp(moment: float, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return f"{dt.datetime.fromtimestamp(moment, dt.UTC):{form}}"


NO_TENSORS = "\3\0\0\0\0\0\0\0{}"
"""A line that is a whole safetensors file: the length of the header, and the header."""


def write(path: Path, lines: Iterable[str], *, changed: float | None = None) -> Path:
    """Writes a log that was last changed at `changed` (Unix seconds)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    if changed is not None:
        os.utime(path, (changed, changed))
    return path


def areal_line(moment: float, text: str) -> str:
    return f"{stamp(moment, '%Y%m%d-%H:%M:%S.000Z')} RayRolloutController INFO: {text}"


def areal_steps(start: float, steps: Sequence[int], *, total: int, pace: float) -> list[str]:
    """The steps of an attempt, with the weight update before each next one."""
    lines = []
    for number, step in enumerate(steps):
        moment = start + number * pace
        lines += [
            areal_line(moment, f"Epoch 1/5 Step {step}/250 Train step {step}/{total} done."),
            areal_line(moment + 1, "Loading weights from disk done in 3.12s. Respond time: 0.41s."),
        ]
    return lines


def restart_loop(folder: Path, *, starts: int = 40) -> Path:
    """Night 1: the container's start command fails each 17 s; the trainer's log ends at step 57."""
    begin = at("2025-11-10 02:00:00")
    trainer: list[str] = []
    for number, last in enumerate((57, 58, 12, 57, 56)):
        start = begin + number * 3600
        trainer += areal_steps(start, range(1, last + 1), total=250, pace=30)
    write(
        folder / "outputs/grpo/logs/root/gsm8k/trial0/trainer.log", trainer, changed=begin + 20_000
    )
    loop = begin + 5 * 3600
    container: list[str] = []
    for number in range(starts):
        moment = stamp(loop + 17 * number)
        container += [
            f"{moment} start container for runpod/pytorch:2.8.0: begin",
            f"{moment} Cloning into 'AReaL'...",
            f"{moment} {ALREADY_EXISTS}",
            f"{moment} container exited with exit code 128",
        ]
    write(folder / "container.log", container, changed=loop + 17 * starts)
    write(
        folder / "dmesg.txt",
        ["[    0.000000] Linux version 6.8.0", "[    3.104500] nvidia: loading out-of-tree module"],
        changed=begin,
    )
    return folder


def inference_down(folder: Path) -> Path:
    """Night 2: the server is gone at 05:09; the trainer retries until Ctrl-C at 18:33."""
    base, trial = folder / "outputs/grpo", "root/gsm8k-grpo-full-local/trial0"
    saved, down, end = (at(f"2025-11-12 {clock}") for clock in ("05:04:00", "05:09:12", "18:33:00"))
    entry = base / f"checkpoints/{trial}/default/epoch1epochstep934globalstep1869"
    for name in ("config.json", "tokenizer_config.json"):
        write(entry / name, ["{}"], changed=saved)
    write(entry / "model.safetensors", [NO_TENSORS], changed=saved)
    record = {"epoch": 1, "epoch_step": 934, "global_step": 1869, "steps_per_epoch": 935}
    info = base / f"checkpoints/{trial}/recover_info"
    write(base / f"checkpoints/{trial}/default/recover_checkpoint/.metadata", ["x"], changed=saved)
    write(info / "step_info.json", [json.dumps(record, indent=4)], changed=saved + 1)
    write(info / "dataloader_info.pkl", ["\x80\x04"], changed=saved + 2)
    lines = areal_steps(saved - 300, range(1861, 1871), total=4675, pace=30)
    gap = (end - down) / 64
    lines += [
        f"{stamp(down + number * gap, '%Y%m%d-%H:%M:%S.000Z')} RemoteInfEngine ERROR: {REFUSED}"
        for number in range(64)
    ]
    lines += [areal_line(end, "Shutting down."), "KeyboardInterrupt"]
    write(base / f"logs/{trial}/trainer.log", lines, changed=end)
    write(base / f"logs/{trial}/wandb/output.log", lines, changed=end)
    write(
        base / f"logs/{trial}/llm_server.log",
        [
            f"[{stamp(down - 400 + 10 * n, '%Y-%m-%d %H:%M:%SZ')}] Decode batch. #running-req: 16"
            for n in range(40)
        ],
        changed=down,
    )
    write(
        folder / "nvidia-smi.txt",
        ["|   0  GPU | 1541MiB / 16376MiB |      0%      Default |"],
        changed=end,
    )
    return folder


def memory_leak(folder: Path) -> Path:
    """Night 3: two workers fill the memory, the brake fires 951 times, the watchdog is dead."""
    begin, end = at("2026-02-15 01:23:30"), at("2026-02-15 02:46:17")
    for worker in (1, 2):
        brakes = 476 if worker == 1 else 475
        lines: list[str] = []
        for trial in range(500):
            clock = stamp(begin + (end - begin) * trial / 500, "%Y-%m-%d %H:%M:%SZ")
            if trial >= 500 - brakes:
                lines += [
                    f"[{clock}] Memory usage: 29.41 GB / 31.23 GB (94.2%)",
                    f"[{clock}] Available: 1.82 GB (below 2.0 GB threshold)",
                    f"[{clock}] Emergency brake triggered: killing trial {trial}",
                ]
            else:
                lines.append(
                    f"[{clock}] [I] Trial {trial} finished with value: 0.41 and parameters"
                )
        write(folder / f"logs/worker_safe_{worker}.log", lines, changed=end)
    write(
        folder / "logs/watchdog.log",
        [
            "[2026-02-15 00:59:39Z] ❌ Worker 1 PID 11858 died, restarting",
            "[2026-02-15 00:59:39Z] ❌ Worker 2 PID 11944 died, restarting",
            "[2026-02-15 00:59:41Z] started worker 1 as PID 77107, worker 2 as PID 77180",
            "[2026-02-15 01:14:14Z] ✅ Worker 1 PID 77107 healthy...",
            "[2026-02-15 01:23:17Z] ❌ Worker 1 PID 77107 dead, starting PID 17650",
            "[2026-02-15 01:24:31Z] ✅ Worker 2 PID 17734 healthy...",
        ],
        changed=at("2026-02-15 01:24:31"),
    )
    boots = ("2026-02-14 23:30:00", "2026-02-15 00:05:00", "2026-02-15 01:14:00")
    write(
        folder / "journal.txt",
        [
            f"{stamp(at(boot), '%Y-%m-%dT%H:%M:%S+0000')} host kernel: Linux version 6.8.0"
            for boot in boots
        ],
        changed=at("2026-02-15 11:53:00"),
    )
    return folder


def waiting_for_rollouts(folder: Path) -> Path:
    """Night 4: the trainer waits for a batch; the orchestrator died of its environment."""
    base = folder / "outputs/wordle-rl-4xa100-80gb"
    begin = at("2025-10-02 10:00:00")
    clock = [stamp(begin + 60 * n, "%Y-%m-%d %H:%M:%SZ") for n in range(400)]
    write(
        base / "logs/trainer.log",
        [
            f"{clock[0]} [    INFO] Starting training loop (max_steps=100)",
            *(
                f"{clock[step]} [ SUCCESS] Step {step} | Time: 55.10s | Loss: 0.0123 | Entropy: 0.5"
                for step in range(1, 4)
            ),
            f"{clock[4]} [    INFO] {WAITING}",
        ],
        changed=begin + 240,
    )
    write(
        base / "logs/orchestrator.log",
        [
            f"{clock[3]} [    INFO] Step 3 | Time: 50.1s | Reward: 0.21",
            f"{clock[4]} [   ERROR] environment not found: wordle",
        ],
        changed=begin + 240,
    )
    write(
        base / "logs/inference.log",
        [f'{one} INFO: 127.0.0.1 - "GET /health HTTP/1.1" 200 OK' for one in clock],
        changed=begin + 400 * 60,
    )
    for step in range(1, 4):
        for rank in (0, 1):
            write(base / f"rollouts/step_{step}/rank_{rank}.pt", ["x"], changed=begin + 60 * step)
    return folder


def gpu_held(folder: Path) -> Path:
    """Night 5: after a restart of the container, leftovers hold GPU 0 and nvidia-smi shows none."""
    begin = at("2025-11-20 08:00:00")
    lines: list[str] = []
    for number in range(3):
        moment = stamp(begin + 120 * number, "%Y-%m-%d %H:%M:%SZ")
        lines += [
            f"[{moment}] server_args=ServerArgs(model_path='Qwen', port=13231)",
            f"[{moment}] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "sglang/srt/managers/scheduler.py", line 2811, in run_scheduler_process',
            BUSY,
        ]
    write(folder / "logs/llm_server.log", lines, changed=begin + 300)
    write(
        folder / "logs/run_training_cloud.log",
        [
            f"{stamp(begin)} Cleaning up any leftover GPU processes...",
            f"{stamp(begin + 3)} Starting SGLang on GPU 0, training on GPUs 1-3",
        ],
        changed=begin + 300,
    )
    write(
        folder / "nvidia-smi.txt",
        [
            "|   0  NVIDIA A40   On | 41213MiB / 46068MiB | 0%  Default |",
            "|  No running processes found  |",
        ],
        changed=begin,
    )
    write(
        folder / "lsof.txt",
        ["python3 4711 root 12u CHR 195,0 0t0 690 /dev/nvidia0"],
        changed=begin,
    )
    return folder
