"""A leftover of a dead run: idle, without an owner, and holding a GPU."""

from __future__ import annotations

from program import Program, arguments
from simulated import GIB, hold_gpu

DEVICE = 1
MEMORY = 6 * GIB


def main() -> None:
    """Hold a GPU until stopped."""
    options = arguments(__doc__).parse_args()
    program = Program(options.name, options.folder)
    held = hold_gpu(options.folder, DEVICE, MEMORY)
    program.log(f"holds GPU {DEVICE}" if held else "there are no GPUs to hold")
    while held and not program.stopping:
        program.pause(1)


if __name__ == "__main__":
    main()
