"""A remediator that is stopped and continued, while Alertmanager gives up on its deliveries."""

from __future__ import annotations

import signal
import socket
import struct
from pathlib import Path

from tests.hostile.programs import REMEDIATOR, Program
from tests.remediator.samples import TOKEN, delivery, sent_alert

DELIVERIES = 15
"""Of each kind; together well below the limit of connections."""


def test_the_webhooks_lost_meanwhile_cost_one_line(tmp_path: Path) -> None:
    program = Program(REMEDIATOR, tmp_path)
    try:
        body = delivery(sent_alert())
        head = (
            "POST /webhook HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        program.process.send_signal(signal.SIGSTOP)
        for sent in (body, body[: len(body) // 2]):
            for reset in (False, True):
                for _ in range(DELIVERIES):
                    with program.connect() as sock:
                        sock.sendall(head + sent)
                        if reset:
                            linger = struct.pack("ii", 1, 0)
                            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        program.process.send_signal(signal.SIGCONT)
        for _ in range(3):  # the lost ones came before
            assert (
                program.ask("POST", "/webhook", body, Authorization=f"Bearer {TOKEN}").status == 200
            )
        assert not any("Traceback" in line for line in program.log)
        assert len([line for line in program.log if "lost with its connection" in line]) == 1
    finally:
        program.close()
