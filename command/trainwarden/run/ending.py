"""Ends the processes of a run: SIGTERM to the command, and SIGKILL to all that is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from trainwarden.run.process_tree import Identity, find_processes, send_signal

GRACE_SECONDS = 30.0
MAX_GRACE_SECONDS = 3600.0
KILL_SECONDS = 10.0
"""How long the kernel may take to end processes after SIGKILL."""
TICK_MILLISECONDS = 100
"""Time between two looks at the processes while they are ended."""


class Ending:
    """One end of the command and its descendants. Call `step` until it returns True.

    It calls `on_kill` with the pids right before it sends SIGKILL to them, the first time.
    """

    def __init__(
        self, child: Identity, run_id: str, grace: float, on_kill: Callable[[list[int]], None]
    ) -> None:
        self._child = child
        self._run_id = run_id
        self._on_kill = on_kill
        self._deadline = time.monotonic() + grace
        self._killed_at: float | None = None
        self._signalled: set[Identity] = set()
        self.problem = ""
        send_signal([child], signal.SIGTERM)
        send_signal([child], signal.SIGCONT)  # a stopped process would not see the other

    def shorten(self, grace: float) -> None:
        """Sends SIGKILL in `grace` seconds at the latest."""
        self._deadline = min(self._deadline, time.monotonic() + grace)

    def step(self, *, child_ended: bool) -> bool:
        """Sends what is due; returns whether all processes are gone, or cannot be ended."""
        alive = find_processes(self._child[0], self._run_id)
        if child_ended:
            alive = [one for one in alive if one[0] != self._child[0]]
            if not alive:
                return True
            # what the command left behind gets its own chance to end well
            send_signal([one for one in alive if one not in self._signalled], signal.SIGTERM)
            self._signalled.update(alive)
        now = time.monotonic()
        if self._killed_at is not None and now > self._killed_at + KILL_SECONDS:
            pids = ", ".join(str(pid) for pid, _ in alive)
            self.problem = f"processes survive SIGKILL: {pids}"
            return True
        if now >= self._deadline:
            if self._killed_at is None and alive:
                self._on_kill([pid for pid, _ in alive])
            self._killed_at = self._killed_at or now
            send_signal(alive, signal.SIGKILL)
        return False
