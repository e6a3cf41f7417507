"""A rollout worker of the demo: asks the inference server and writes what it answered to files."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from program import Program, arguments, write_whole
from simulated import GIB, hold_gpu

PAUSE_SECONDS = 0.5
ANSWER_SECONDS = 10.0
KEEP = 20
DEVICE, DEVICE_MEMORY = 0, GIB


def main() -> None:
    """Write one rollout after the other until stopped."""
    parser = arguments(__doc__)
    parser.add_argument("--inference", required=True, help="URL of the inference server")
    options = parser.parse_args()
    program = Program(options.name, options.folder)
    hold_gpu(options.folder, DEVICE, DEVICE_MEMORY)
    folder = options.folder / "rollouts" / options.name
    folder.mkdir(parents=True, exist_ok=True)
    server = urllib.parse.urlsplit(options.inference).netloc

    failures = 0
    for step in steps(folder):
        program.pause(PAUSE_SECONDS)
        while program.stalled and not program.stopping:
            program.pause(PAUSE_SECONDS)
        while not program.stopping:
            try:
                text = ask(server, f"What is {step} + {step}?")
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                program.log(f"inference server does not answer, retry {failures}: {error}")
                program.pause(2 * PAUSE_SECONDS)
            else:
                failures = 0
                write_rollout(folder, step, text)
                program.log(f"wrote rollout step_{step:06d}")
                break
        if program.stopping:
            break


def steps(folder: Path) -> Iterator[int]:
    """Numbers of rollouts, going on after the newest in `folder`."""
    written = sorted(folder.glob("step_*.json"))
    step = int(written[-1].stem.removeprefix("step_")) if written else 0
    while True:
        step += 1
        yield step


def ask(server: str, prompt: str) -> str:
    """The server's completion of `prompt`.

    Raises OSError when it cannot be reached or is silent, HTTPException when it answers nonsense.
    """
    connection = http.client.HTTPConnection(server, timeout=ANSWER_SECONDS)
    body = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": 16})
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"status {response.status}")
        return str(json.loads(response.read())["choices"][0]["text"])
    finally:
        connection.close()


def write_rollout(folder: Path, step: int, text: str) -> None:
    """Write one rollout whole, and remove the oldest."""
    right = text.strip() == str(2 * step)
    rollout = {"step": step, "text": text, "reward": float(right), "time": time.time()}
    write_whole(folder / f"step_{step:06d}.json", json.dumps(rollout).encode())
    for old in sorted(folder.glob("step_*.json"))[:-KEEP]:
        old.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
