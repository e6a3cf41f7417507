"""The command `trainwarden`."""

from __future__ import annotations

import sys

from trainwarden.cli import main

if __name__ == "__main__":
    sys.exit(main())
