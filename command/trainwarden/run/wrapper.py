"""The process between the user's terminal and the command."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from trainwarden.run.announcement import Announcement
from trainwarden.run.control import Client, refusal
from trainwarden.run.ending import GRACE_SECONDS, TICK_MILLISECONDS, Ending
from trainwarden.run.hidden_failure import find_final_error
from trainwarden.run.launcher import (
    MESSAGE_BYTES,
    NOT_EXECUTABLE,
    NOT_FOUND,
    why_not_started,
)
from trainwarden.run.left_processes import describe_left_behind
from trainwarden.run.policy import (
    ON_FAILURE,
    FailureCount,
    UserStop,
    describe_end,
    describe_prospect,
    describe_restart,
    end_state,
    failed_at_once,
    is_time_over,
    never_works,
    waits_for_remediator,
)
from trainwarden.run.process_tree import read_start_ticks
from trainwarden.run.registration import Registration
from trainwarden.run.relay import Relay
from trainwarden.run.run_log import RunLog
from trainwarden.run.signals import GROUP, HANDLED, STOPS, has_terminal
from trainwarden.run.streams import Streams

STOPPED_BY_USER = "it was stopped by the user"
RETRY_SECONDS = 3600.0
"""How long a detached run that has failed waits for a request to start it again."""


class Wrapper:
    """Serves one run until its command has ended. `run` returns the wait status."""

    def __init__(
        self,
        announcement: Announcement,
        streams: Streams,
        log: RunLog,
        channel: socket.socket,
        *,
        detached: bool = False,
    ) -> None:
        self._announcement = announcement
        self._streams = streams
        self._log = log
        self._relay = Relay(streams, log)
        self._channel = channel
        self._detached = detached
        self._registration = Registration(announcement)
        self._attended = has_terminal()
        self._poll = select.poll()
        self._registered: dict[int, int] = {}
        self._running = False
        self._status: int | None = None
        self._user_stop: UserStop | None = None
        self._failures = FailureCount()
        self._ending: Ending | None = None
        self._request: tuple[Client, str] | None = None
        self._start_at: float | None = None
        self._starting = False
        self._stop_at_start: float | None = None
        """The grace in seconds, if the user stopped the command while it was started."""
        self._retry_until: float | None = None

    def run(self, last_message: Sequence[str] | None = None) -> int:
        """Returns the wait status of the command; 127 or 126 as its code if it did not start.

        `last_message` is the last word of the launcher to the wrapper before this one.
        """
        self._registration.listen()
        self._catch_signals()
        self._streams.enter_raw()
        try:
            if last_message is None:
                self._start()
            else:
                self._take_over(last_message)
            while self._status is None:
                self._step()
            self._relay.flush()
        finally:
            self._streams.restore()
            self._registration.close()
            with suppress(OSError):
                self._channel.send(b"bye")
        return self._status

    def _catch_signals(self) -> None:
        self._wakeup, wakeup = os.pipe()
        for fd in (self._wakeup, wakeup):
            os.set_blocking(fd, False)
        for number in HANDLED:
            # what was ignored from the start, as under nohup, stays so
            if signal.getsignal(number) is not signal.SIG_IGN or self._detached:
                signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def _take_over(self, message: Sequence[str]) -> None:
        self._announcement.reload()
        self._announcement.record_wrapper()
        if message:
            self._handle(message)
        else:
            self._start()

    # the loop

    def _step(self) -> None:
        self._register()
        for fd, events in self._poll.poll(self._timeout()):
            if fd == self._wakeup:
                for number in os.read(self._wakeup, 4096):
                    self._handle_signal(signal.Signals(number))
            elif fd == self._channel.fileno():
                self._receive()
            elif fd in self._registration.descriptors():
                if (found := self._registration.serve(fd)) is not None:
                    self._answer(*found)
            else:
                self._relay_data(fd, events)
        self._advance()

    def _relay_data(self, fd: int, events: int) -> None:
        keys = self._relay.serve(fd, events)
        if keys is None:
            self._lose_terminal()
        elif keys and self._streams.interrupts(keys):
            self._stop_by_user()

    def _timeout(self) -> int:
        if self._ending is not None:
            return TICK_MILLISECONDS
        moments = [one for one in (self._start_at, self._retry_until) if one is not None]
        moments.append(self._registration.check_at)
        return max(0, int((min(moments) - time.monotonic()) * 1000) + 1)

    def _register(self) -> None:
        wanted = {self._wakeup: select.POLLIN, self._channel.fileno(): select.POLLIN}
        wanted |= self._relay.wanted()
        wanted |= dict.fromkeys(self._registration.descriptors(), select.POLLIN)
        for fd in self._registered.keys() - wanted.keys():
            self._poll.unregister(fd)
        for fd, events in wanted.items():
            if self._registered.get(fd) != events:
                self._poll.register(fd, events)
        self._registered = wanted

    def _advance(self) -> None:
        """Does what is due without an event."""
        if self._ending is not None and self._ending.step(child_ended=not self._running):
            self._finish_ending(self._ending.problem)
        now = time.monotonic()
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start()
        if self._retry_until is not None and now >= self._retry_until:
            self._status = self._announcement.content["exit_status"]
        if self._registration.renew():
            self._log.reopen()

    def _lose_terminal(self) -> None:
        self._relay.drop_user()
        self._detached = True

    def _say(self, text: str, more: str = "") -> None:
        """Writes a line of this program to the log, and with `more` to the terminal."""
        start = "" if self._log.tail[-1:] in (b"", b"\n") else "\n"
        self._log.write(f"{start}trainwarden: {text}\n".encode())
        self._relay.say(f"{start}trainwarden: {text}{more}\n")

    # signals

    def _handle_signal(self, number: signal.Signals) -> None:
        if number is signal.SIGWINCH:
            self._streams.copy_size()
            return
        if number is signal.SIGHUP and self._attended:
            self._lose_terminal()
            return
        if number is signal.SIGCONT:
            self._streams.enter_raw()
            self._streams.copy_size()
        if number in STOPS:
            self._stop_by_user()
        self._signal_child(number)

    def _stop_by_user(self) -> None:
        """Records that the user ends the command, whatever the remediator has asked for."""
        self._user_stop = UserStop(self._log.tail)
        if self._restarts():
            self._answer_request(ok=False, error=STOPPED_BY_USER)
        if self._starting:
            self._stop_at_start = GRACE_SECONDS
        elif not self._running and self._ending is None:
            self._start_at = None
            self._finish_ending("")

    def _signal_child(self, number: int) -> None:
        """Sends a signal to the command, or to its process group as a terminal does."""
        content = self._announcement.content
        pid = content["pid"]
        if not self._running or read_start_ticks(pid) != content["start_ticks"]:
            return
        with suppress(OSError):
            if number in GROUP:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def _start(self) -> None:
        self._log.begin_attempt(describe_restart(self._announcement))
        self._user_stop, self._starting = None, True
        self._channel.send(b"start")

    def _suspend(self) -> None:
        """Stops as the command has: the shell takes the terminal back."""
        self._streams.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._streams.enter_raw()

    # the launcher

    def _receive(self) -> None:
        try:
            message = self._channel.recv(MESSAGE_BYTES)
        except OSError:
            message = b""
        self._handle(message.decode().split() if message else ["lost"])

    def _handle(self, message: Sequence[str]) -> None:
        match message:
            case ["started", pid, ticks]:
                self._running, self._starting = True, False
                self._retry_until = None
                if self._announcement.content["pid"] != int(pid):
                    self._announcement.record_start(int(pid), int(ticks))
                if self._stop_at_start is not None:
                    self._end_child(self._stop_at_start)
                    return
                self._answer_request(ok=True, pid=int(pid), start_ticks=int(ticks))
            case ["failed", number]:
                self._fail_to_start(int(number))
            case ["stopped", number] if int(number) != signal.SIGSTOP and not self._detached:
                self._suspend()
            case ["exited", pid, status] if int(pid) == self._announcement.content["pid"]:
                self._running = False
                self._handle_exit(int(status))
            case ["lost"]:
                self._handle_lost_launcher()

    def _fail_to_start(self, number: int) -> None:
        argv = self._announcement.content["argv"]
        code = NOT_FOUND if number == 2 else NOT_EXECUTABLE  # noqa: PLR2004 - ENOENT
        why = why_not_started(argv[0], number)
        self._answer_request(error=why)
        self._streams.restore()
        print(f"trainwarden run: {argv[0]}: {why}", file=sys.stderr)  # noqa: T201
        self._status = code << 8
        # a mistyped command is no run: nobody is to be called
        state = "failed" if self._announcement.content["starts"] else "stopped"
        self._announcement.record_exit(state, self._status, [why])

    def _handle_exit(self, status: int) -> None:
        self._relay.drain()
        lasted = time.time() - (self._announcement.content["started_at"] or 0.0)
        stop, finishes = self._user_stop, self._announcement.content["finishes"]
        command = self._announcement.content["argv"], self._announcement.content["cwd"]
        is_end = status == 0 and finishes
        error = find_final_error(self._log.tail, *command) if is_end else None
        finishes = finishes and not (error and error.is_failure)
        stopped = stop is not None and stop.explains(status, self._log.tail)
        over = is_time_over(self._announcement.content["argv"], lasted, status)
        state = end_state(status, stopped=stopped or over, finishes=finishes)
        if self._ending is not None:
            state = "restarting" if self._restarts() else "stopped"
        self._announcement.content["final_error"] = "" if error is None else error.line
        self._announcement.record_exit(state, status, self._log.last_lines())
        if self._ending is not None:
            return
        policy, delay = self._announcement.content["restart"], None
        if state == "failed" and policy == ON_FAILURE:
            delay = self._failures.next_delay(lasted)
        at_once = state == "failed" and failed_at_once(lasted, status, self._log.tail)
        waits = waits_for_remediator(state, policy, detached=self._detached)
        hopeless = waits and never_works(self._announcement, self._log.tail, at_once=at_once)
        waits = waits and not hopeless
        left = describe_left_behind(self._announcement.content["goes_on"])
        if prospect := left or describe_prospect(
            *(state, policy), waits=waits, delay=delay, over=over, never_works=hopeless
        ):
            how = f"{describe_end(self._announcement, status)}; {prospect}"
            self._say(how, f"; log: {self._announcement.files.log}")
        if delay is not None:
            self._announcement.record_own_restart()
            self._start_at = time.monotonic() + delay
        elif waits:
            self._retry_until = time.monotonic() + RETRY_SECONDS
        else:
            self._announcement.record_hopeless(hopeless)
            self._status = status
            first = state == "failed" and self._announcement.content["starts"] == 1
            seen = first and policy != ON_FAILURE and self._streams.is_watched
            if seen and at_once:
                self._announcement.record_dismissal()

    def _handle_lost_launcher(self) -> None:
        """Without the launcher nobody learns how the command ends, and nobody can restart it."""
        content = self._announcement.content
        content["state"] = "failed"
        if read_start_ticks(content["pid"]) == content["start_ticks"]:
            self._say("the launcher was killed; the command goes on without this program")
            content["state"] = "running"
        self._announcement.save()
        self._status = 1 << 8

    # requests

    def _answer(self, client: Client, request: dict[str, Any]) -> None:
        match request.get("command"):
            case "status":
                client.answer(ok=True, status=self._announcement.content)
            case "restart" | "stop" as command:
                busy = self._request is not None or self._ending is not None
                busy = busy and not (command == "stop" and self._restarts())
                if problem := refusal(request, self._announcement.content, busy=busy):
                    client.answer(ok=False, error=problem)
                    return
                self._answer_request(ok=False, error=STOPPED_BY_USER)
                self._request = client, command
                self._announcement.content["ended_with_run"] = bool(request.get("with_run"))
                self._begin(command, request.get("grace", GRACE_SECONDS))
            case _:
                client.answer(ok=False, error="unknown command")

    def _begin(self, command: str, grace: float) -> None:
        self._start_at = self._retry_until = None
        self._announcement.record_silence(self._log.silent_for if self._running else None)
        self._say(f"{command} requested{' by the remediator' * (command == 'restart')}")
        if self._starting:
            self._stop_at_start = grace
        elif self._ending is not None:  # of a restart, which the stop replaces
            self._ending.shorten(grace)
        elif self._running:
            self._end_child(grace)
        else:
            self._finish_ending("")

    def _end_child(self, grace: float) -> None:
        content = self._announcement.content
        child = content["pid"], content["start_ticks"]
        self._ending = Ending(child, content["run_id"], grace, self._tell_kill)

    def _restarts(self) -> bool:
        """Whether a request to restart the command is being carried out."""
        return self._request is not None and self._request[1] == "restart"

    def _finish_ending(self, problem: str) -> None:
        command = "stop" if self._request is None else self._request[1]
        self._ending = None
        if problem:
            self._answer_request(ok=False, error=problem)
            return
        if command == "restart" and self._request is not None:
            self._request[0].tell("start")
            self._start()
            return
        content = self._announcement.content
        content["state"] = "stopped"
        self._announcement.save()
        self._answer_request(ok=True)
        self._status = content["exit_status"] or 0

    def _tell_kill(self, pids: Sequence[int]) -> None:
        if self._request is not None:
            self._request[0].tell("kill", processes=pids)

    def _answer_request(self, **content: Any) -> None:
        if self._request is not None:
            self._request[0].answer(**content)
            self._request = None
