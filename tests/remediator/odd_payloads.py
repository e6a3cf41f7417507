"""Makes payloads that are malformed, hostile or merely odd, the same ones for the same seed."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.remediator.samples import delivery, sent_alert

TEXTS = (
    "",
    "rollout-0",
    "demo",
    "restart_leaking_worker",
    "--help",
    "-oProxyCommand=true",
    "$(reboot)",
    "`reboot`",
    "; rm -rf /",
    "a\nb",
    "a\0b",
    "../../etc/passwd",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil",
    "\ud800",
    "\N{PILE OF POO}" * 9,
    "' OR 1=1 --",
    "%s%n{0}{{.}}",
    "<script>alert(1)</script>",
    "x" * 65_536,
)
VALUES: tuple[Any, ...] = (None, True, 0, -1, 10**400, 1.5, "", [], {}, [[]], "firing")
MOMENTS = (
    "2027-01-15T08:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "2027-01-15T08:00:00+23:59",
    "2027-02-30T00:00:00Z",
    "1e9",
    "yesterday",
    "",
)
KEYS = ("status", "labels", "annotations", "startsAt", "endsAt", "fingerprint", "generatorURL")


def odd_payload(chance: random.Random) -> bytes:
    """One payload. None of them is about a worker that may be acted upon."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.randbytes(chance.randrange(300))
    if kind == 1:
        depth = chance.choice((10, 100, 5_000))
        opening, closing = chance.choice((("[", "]"), ('{"alerts":', "}")))
        return (opening * depth + closing * chance.choice((0, depth))).encode()
    whole = delivery(*(_odd_alert(chance) for _ in range(chance.choice((0, 1, 1, 2, 30)))))
    if kind == 2:  # cut off
        return whole[: chance.randrange(len(whole))]
    if kind == 3:  # a byte of it is another
        at = chance.randrange(len(whole))
        return whole[:at] + chance.randbytes(1) + whole[at + 1 :]
    if kind == 4:
        content = json.loads(whole)
        content[chance.choice(list(content))] = chance.choice(VALUES)
        return json.dumps(content).encode()
    return whole


def _odd_alert(chance: random.Random) -> dict[str, Any]:
    # in every one of them the worker is nobody's
    labels: dict[str, Any] = {
        chance.choice(("run", "remediation", "alertname", "severity", chance.choice(TEXTS))): (
            chance.choice(TEXTS)
        )
        for _ in range(chance.randrange(6))
    }
    alert = sent_alert(labels={**labels, "worker": f"nobody{chance.choice(TEXTS)}"})
    alert["fingerprint"] = f"{chance.getrandbits(64):016x}"
    alert["status"] = chance.choice(("firing", "firing", "resolved"))
    if chance.random() < 0.3:
        alert["startsAt"] = chance.choice(MOMENTS)
    if chance.random() < 0.2:
        alert[chance.choice(KEYS)] = chance.choice(VALUES)
    return alert
