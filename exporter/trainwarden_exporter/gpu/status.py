"""The GPUs on the status page: each one, who holds them and should not, and the driver's errors."""

from __future__ import annotations

from html import escape

from trainwarden_exporter import wording
from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.gpu.sightings import GpuSighting, GpusSighting, XidSighting
from trainwarden_exporter.gpu.xid import describe
from trainwarden_exporter.processes.procfs import start_timestamp
from trainwarden_exporter.serving import page

_UNKNOWN = "&ndash;"
_LONGEST_COMMAND = 160


def gpu_section(sighting: GpusSighting, *, now: float) -> str:
    """The section as HTML; empty on a machine that has nothing to do with GPUs."""
    if not sighting.present:
        return ""
    parts = []
    if sighting.gpus:
        columns = {"GPU": "", "State": "", "Memory": "memory"}
        columns |= dict.fromkeys(("Load", "Temperature", "Power", "Processes"), "number")
        rows = "\n".join(f"<tr>{_gpu(gpu)}</tr>" for gpu in sighting.gpus)
        parts.append(page.table(columns, rows))
    else:
        state = escape(sighting.state or "not known")
        parts.append(f'<p class="bad">No GPU can be seen; the driver is: {state}.</p>')
    if sighting.orphans:
        said = "These hold a GPU and belong to no worker:"
        parts.append(f'<p class="bad">{said}</p>{_holders(sighting.orphans, now=now)}')
    if sighting.observers:
        said = "These only look, and take nothing from a run:"
        parts.append(f'<p class="quiet">{said}</p>{_holders(sighting.observers, now=now)}')
    if sighting.xids:
        listed = "".join(f"<li>{_xid(xid, now=now)}</li>" for xid in sighting.xids)
        parts.append(f"<p>Errors of the driver (XIDs):</p><ul>{listed}</ul>")
    return page.section("GPUs", "\n".join(parts))


def _gpu(gpu: GpuSighting) -> str:
    memory = _UNKNOWN
    if gpu.memory_used is not None and gpu.memory_total:
        memory = (
            f"{wording.size(gpu.memory_used)} "
            f'<span class="quiet">of {wording.size(gpu.memory_total)}</span>'
            f"{page.bar(gpu.memory_used / gpu.memory_total, 'good')}"
        )
    name = f' <span class="quiet" title="{escape(gpu.uuid)}">{escape(gpu.name)}</span>'
    return "".join(
        (
            f'<td class="name" data-label="GPU"><span>{escape(gpu.gpu)}{name}</span></td>',
            f'<td data-label="State"><span class="state {gpu.tone}">{gpu.state}</span></td>',
            f'<td class="memory" data-label="Memory">{memory}</td>',
            page.number("Load", _amount(gpu.utilization, "{:.0%}")),
            page.number("Temperature", _amount(gpu.temperature, "{:.0f} °C")),
            page.number("Power", _amount(gpu.power, "{:.0f} W")),
            page.number("Processes", _amount(gpu.processes, "{:.0f}")),
        )
    )


def _amount(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else form.format(value)


def _holders(holders: tuple[Holder, ...], *, now: float) -> str:
    columns = {"Held by": "", "Owner": "", "Age": "number", "Memory": "number", "GPU": ""}
    rows = "\n".join(f"<tr>{_holder(holder, now=now)}</tr>" for holder in holders)
    return page.table(columns, rows)


def _holder(holder: Holder, *, now: float) -> str:
    age = max(0, round(now - start_timestamp(holder.process.identity)))
    held = holder.memory_bytes
    gpus = ", ".join(key.gpu for key in holder.gpus if key.gpu) or "the driver"
    listed = "" if holder.listed else ' <span class="quiet">not listed by it</span>'
    command = escape(holder.command[:_LONGEST_COMMAND])
    who = f'{holder.process.pid} <span class="quiet">{command}</span>'
    return "".join(
        (
            f'<td class="name" data-label="Held by"><span>{who}</span></td>',
            f'<td data-label="Owner">{escape(holder.owner)}</td>',
            page.number("Age", wording.span(age)),
            page.number("Memory", _UNKNOWN if held is None else wording.size(held)),
            f'<td data-label="GPU">{escape(gpus)}{listed}</td>',
        )
    )


def _xid(xid: XidSighting, *, now: float) -> str:
    tone = {"fatal": "bad", "warning": "warn", "unknown": "warn"}.get(xid.severity, "quiet")
    ago = wording.span(max(0, round(now - xid.last)))
    times = "" if xid.count == 1 else f", {xid.count:.0f} times"
    meaning = escape(describe(xid.code).meaning)
    return (
        f'<span class="state {tone}">{escape(xid.severity)}</span> XID {xid.code}'
        f" on GPU {escape(xid.gpu)}: {meaning}{times}, last {ago} ago"
    )
