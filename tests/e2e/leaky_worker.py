"""A worker of night 3: it does what the file of its orders says, until the remediator started it.

Orders, one a line: `hold BYTES` (holds that much), `brake` (its emergency brake ends each trial).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

LOOK_SECONDS = 0.2
BRAKE_LINE = "EMERGENCY BRAKE: 1.82GB < 2.0GB, trial killed"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--of", type=Path, required=True)
    parser.add_argument("--name", required=True)
    given = parser.parse_args()
    orders, log = given.of / f"{given.name}.orders", given.of / f"{given.name}.log"
    fresh = "TRAINWARDEN_ACTION" in os.environ
    held = bytearray()
    with log.open("a", buffering=1) as output:
        output.write("worker started\n")
        while True:
            lines = [] if fresh or not orders.exists() else orders.read_text().splitlines()
            for line in lines:
                order, _, size = line.partition(" ")
                if order == "hold" and len(held) != int(size):
                    held = bytearray(b"\1") * int(size)
                elif order == "brake":
                    output.write(f"{BRAKE_LINE}\n")
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
