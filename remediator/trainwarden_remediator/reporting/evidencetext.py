"""Evidence as Markdown, folded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainwarden_exporter.wording import size
from trainwarden_remediator.reporting.account import Piece
from trainwarden_remediator.reporting.markdown import code, fence, folded, table, text
from trainwarden_remediator.reporting.times import Times, after

_KINDS = {
    "act": "before action {action}",
    "hold": "when everything else was held",
    "gave_up": "when it was given up",
    "end": "when it was over",
}
_BYTES = "bytes"


def evidence(pieces: Iterable[Piece], start: float, times: Times) -> str:
    """Every piece, below a line each."""
    return "\n\n".join(_piece(piece, start, times) for piece in pieces)


def last_lines(piece: Piece, count: int) -> tuple[str, list[str]] | None:
    """The end of the log that says most about it: that of the target itself, if it says anything.

    Returns its path and the lines; None where there is none.
    """
    log = next((log for log in piece.logs if log.get("lines")), None)
    if log is None:
        return None
    return str(log.get("path", "")), [str(line) for line in log["lines"]][-count:]


def _piece(piece: Piece, start: float, times: Times) -> str:
    kind = _KINDS.get(piece.kind, piece.kind).format(action=piece.action)
    summary = f"Evidence {kind}, {times.clock(piece.at)} ({after(piece.at, start)})"
    return folded(summary, "\n\n".join(_parts(piece, times)) or "Nothing could be had.")


def _parts(piece: Piece, times: Times) -> Iterator[str]:
    content = piece.content
    if memory := content.get("memory"):
        yield f"**Memory**: {_memory(memory)}"
    processes = content.get("processes", {})
    if tree := processes.get("tree"):
        count = processes["of_target"]
        yield f"**The target**, {count} process{'es' * (count != 1)}"
        yield _processes(tree, times)
    if largest := processes.get("largest"):
        yield f"**The largest of the {processes['on_box']} processes of the box**"
        yield _processes(largest, times)
    if gpus := content.get("gpus"):
        yield f"**GPUs**: {_gpus(gpus)}"
        if holders := gpus.get("holders"):
            yield fence(_holder(one) for one in holders)
    for log in piece.logs:
        head = f"**Log {code(str(log['name']))}**, {code(str(log['path']))}, {size(log['size'])},"
        yield f"{head} last written to {times.clock(log['modified'])}:"
        yield fence(map(str, log["lines"])) if log["lines"] else "It is empty."
    if seen := content.get("seen"):
        yield "**What the exporter showed**"
        yield fence(_series(seen, times))
    for name, why in content.get("missing", {}).items():
        yield f"*Not to be had:* {text(name)}: {text(str(why))}"
    if content.get("shortened"):
        yield "*Shortened: there was more of it.*"


def _memory(memory: Mapping[str, Any]) -> str:
    said = (
        f"{size(memory['available'])} of {size(memory['total'])} available, "
        f"{size(memory['floor'])} should stay so"
    )
    if "cgroup_limit" in memory:
        used, limit = memory["cgroup_working_set"], memory["cgroup_limit"]
        said += f"; the cgroup holds {size(used)} of the {size(limit)} it may"
    return f"{said}."


def _processes(rows: Iterable[Mapping[str, Any]], times: Times) -> str:
    return table(
        ("pid", "parent", "started", "state", "memory", "command"),
        (
            (
                str(row["pid"]),
                str(row["parent"]),
                times.short(row["started"]),
                text(str(row["state"])),
                size(row["bytes"]),
                code(str(row["command"])),
            )
            for row in rows
        ),
    )


def _gpus(gpus: Mapping[str, Any]) -> str:
    devices = [
        f"GPU {text(str(device['gpu']))} {text(str(device['name']))}"
        + (
            f" {size(device['used'])} of {size(device['total'])} used"
            if device.get("used") is not None and device.get("total") is not None
            else ""
        )
        for device in gpus.get("devices", ())
    ]
    driver = str(gpus.get("driver", ""))
    why = f" ({text(str(gpus['reason']))})" if gpus.get("reason") else ""
    return "; ".join(devices) or f"driver {text(driver)}{why}"


def _holder(holder: Mapping[str, Any]) -> str:
    whose = holder.get("worker") or ("nobody's" if holder.get("orphan") else "not a worker's")
    return f"{whose}: {holder.get('is', '')}"


def _series(seen: Mapping[str, Any], times: Times) -> Iterator[str]:
    for kind, things in seen.items():
        if not isinstance(things, Mapping):
            continue
        single = {name: value for name, value in things.items() if not isinstance(value, Mapping)}
        if single:
            yield f"{kind}: {_facts(single, times)}"
        for name, facts in things.items():
            if isinstance(facts, Mapping):
                yield f"{kind.rstrip('s')} {name}: {_facts(facts, times)}"


def _facts(facts: Mapping[str, Any], times: Times) -> str:
    return ", ".join(f"{name}={_value(name, value, times)}" for name, value in facts.items())


def _value(name: str, value: Any, times: Times) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith(_BYTES) or name in ("free", "size"):
        return size(value)
    return times.clock(value) if name.endswith("_at") or name == "since" else f"{value:g}"
