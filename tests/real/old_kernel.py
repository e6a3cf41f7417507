"""The exporter as on a kernel before 6.15: no exit status of processes that are not children."""

from __future__ import annotations

import sys

from trainwarden_exporter.__main__ import main
from trainwarden_exporter.processes import exit_status


def no_info(pidfd: int) -> None:
    """The kernel refuses PIDFD_GET_INFO."""


exit_status._pidfd_info = no_info
sys.exit(main())
