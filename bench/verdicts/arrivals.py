"""How often faults came on real servers, beside how the rules find each in the model.

The record: stepfun-ai/InfiniteHBD-Trace (Apache 2.0), the first half of its days. `make
bench-traces` counts it again; a test holds the counts here to docs/traces.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from bounds import share_at_most
from results import Result
from verdicts.judging import Judgement, by_alert

SERVERS = 400
DAYS = 174
FAULTS = 312
"""All that the operators named in so many days."""
Kind = tuple[str, str]
"""What the operators call a fault: class and description."""
ALERTS: Mapping[Kind, tuple[str, str]] = {
    ("GPU", "GPU DBE(Double Bit ECC) > Threshold"): ("TrainingGpuMemoryErrors", "critical"),
    ("GPU", "GPU PCI link width low"): ("TrainingGpuLinkSlow", "warning"),
    ("GPU", "GPU xid Error"): ("TrainingGpuXid", "critical"),
    ("GPU", "GPU Lost"): ("TrainingGpuLost", "critical"),
    ("GPU", "nvidia-smi Timeout"): ("TrainingCollectorFailing", "warning"),
    ("GPU", "GPU Temperature High"): ("TrainingGpuThrottled", "warning"),
    ("System Crash", "Server down"): ("TrainingReboot", "warning"),
    ("File System", "FS: Multiple Disk FS Error"): ("TrainingDiskReadOnly", "critical"),
}
"""The kinds that an alert is for. Nobody here watches network cards, cables, power and fans."""
COUNTS: Mapping[Kind, int] = {
    ("GPU", "GPU DBE(Double Bit ECC) > Threshold"): 26,
    ("GPU", "GPU PCI link width low"): 13,
    ("GPU", "GPU xid Error"): 9,
    ("GPU", "GPU Lost"): 3,
    ("GPU", "nvidia-smi Timeout"): 2,
    ("GPU", "GPU Temperature High"): 1,
    ("System Crash", "Server down"): 1,
    ("File System", "FS: Multiple Disk FS Error"): 1,
}


def section(judgements: Sequence[Judgement]) -> list[str]:
    """Of docs/verdicts.md; nothing where none of these alerts was judged."""
    findings = by_alert(judgements)
    rows, found, watched = [], 0.0, 0
    for kind, count in COUNTS.items():
        alert, severity = ALERTS[kind]
        own = findings.get((alert, severity, ""), [])
        if not own:
            continue
        delays = [one.delay for one in own if one.delay is not None]
        found += count * len(delays) / len(own)
        watched += count
        rows.append(
            (
                kind[1],
                str(count),
                f"{30 * count / (SERVERS * DAYS):.2g}",
                f"[{alert}](runbooks/{alert}.md)",
                f"{len(delays)} of {len(own)}",
                f"{median(delays):.0f}" if delays else "-",
            )
        )
    if not rows:
        return []
    least = 1 - share_at_most(FAULTS - watched, FAULTS)
    about = (
        f"The operators of {SERVERS} GPU servers named {FAULTS} faults in {DAYS} days, one in "
        f"{SERVERS * DAYS / FAULTS:.0f} days of a host ([traces.md](traces.md)). The counts are "
        f"real, what is found is of the model. {watched} of them ({100 * watched / FAULTS:.0f} %; "
        f"with 95 % confidence at least {100 * least:.0f} %) are of kinds that an alert is for; "
        f"each as often as it came, {100 * found / watched:.0f} % of these are found. No rule is "
        f"for the other {FAULTS - watched}: what the operators call unknown, failed stress tests, "
        "cables, network cards, power, fans. They show in what they do to the run. Hangs, leaks "
        "and full disks, for which most of the rules are, are not in the record of an operator of "
        "hosts: how often they come is not known, and nothing here depends on it."
    )
    columns = (*("fault", "faults", "a host-month", "alert"), *("found", "median seconds"))
    return [Result("As often as on real servers", about, columns, tuple(rows)).page()]
