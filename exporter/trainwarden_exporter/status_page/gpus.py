"""Status page: GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.gpu.xid import describe
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.fragments import (
    UNKNOWN,
    ago,
    amount,
    duration,
    number_columns,
    quiet,
    state,
    table,
    usage,
)
from trainwarden_exporter.status_page.series import Series, Tone
from trainwarden_exporter.webserver import html


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU. Sizes in bytes; None where unknown."""

    gpu: str
    uuid: str
    up: bool
    name: str = ""
    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    temperature: float | None = None
    power: float | None = None
    processes: float | None = None
    orphans: float = 0

    @property
    def tone(self) -> Tone:
        return "good" if self.up and not self.orphans else "bad"

    @property
    def state(self) -> str:
        if not self.up:
            return "lost"
        return "held by orphans" if self.orphans else "up"


@dataclass(frozen=True, slots=True)
class XidView:
    """An XID: code, number of occurrences and last occurrence (Unix seconds)."""

    gpu: str
    code: int
    severity: str
    count: float
    last: float


@dataclass(frozen=True, slots=True)
class GpusView:
    """The driver and all GPUs; `state` is None if the driver's state is unknown."""

    state: str | None = None
    expected: float = 0
    gpus: tuple[GpuView, ...] = ()
    orphans: tuple[Holder, ...] = ()
    observers: tuple[Holder, ...] = ()
    xids: tuple[XidView, ...] = ()

    @property
    def present(self) -> bool:
        """Whether this machine has, or should have, GPUs."""
        return self.state not in (None, "absent") or self.expected > 0 or bool(self.xids)

    @property
    def problems(self) -> tuple[str, ...]:
        summary = []
        if self.present and self.state in ("failed", "absent"):
            summary.append("the GPU driver cannot be used")
        missing = self.expected - sum(1 for gpu in self.gpus if gpu.up)
        if self.state in ("ok", "no_devices") and missing > 0:
            summary.append(f"{missing:.0f} of {self.expected:.0f} GPUs missing")
        if self.orphans:
            summary.append("GPUs are held by processes of no worker")
        return tuple(summary)


def build_gpus_view(outcomes: Iterable[Outcome]) -> GpusView:
    """Returns the GPUs in `outcomes`."""
    outcomes = tuple(outcomes)
    series = Series(outcomes)
    names = {key[:2]: key[2] for key in series.all("gpu_info")}
    gpus = tuple(
        GpuView(
            gpu=key[0],
            uuid=key[1],
            up=bool(up),
            name=names.get(key, ""),
            utilization=series.of("gpu_utilization_ratio", *key),
            memory_used=series.of("gpu_memory_used_bytes", *key),
            memory_total=series.of("gpu_memory_total_bytes", *key),
            temperature=series.of("gpu_temperature_celsius", *key, "core"),
            power=series.of("gpu_power_watts", *key),
            processes=series.of("gpu_processes", *key),
            orphans=series.of("gpu_orphan_holders", *key) or 0,
        )
        for key, up in sorted(series.all("gpu_up").items())
    )
    holders = [
        artifact
        for outcome in outcomes
        for artifact in outcome.artifacts
        if isinstance(artifact, Holder)
    ]
    last = series.all("gpu_xid_last_timestamp_seconds")
    return GpusView(
        state=series.word("gpu_driver_state") or None,
        expected=series.of("gpu_devices_expected") or 0,
        gpus=gpus,
        orphans=tuple(one for one in holders if not one.monitor_only and not one.attended),
        observers=tuple(one for one in holders if one.monitor_only or one.attended),
        xids=tuple(
            XidView(key[0], int(key[2]), key[3], count, last[key])
            for key, count in series.all("gpu_xid_errors_total").items()
            if key in last
        ),
    )


_LONGEST_COMMAND = 160


def gpu_section(view: GpusView, *, now: float) -> str:
    """Returns the HTML section; empty on a machine without GPUs."""
    if not view.present:
        return ""
    parts = []
    if view.gpus:
        parts.append(
            table(
                {
                    "GPU": "name",
                    "State": "text",
                    "Memory": "memory",
                    **number_columns("Load", "Temperature", "Power", "Processes"),
                },
                map(_gpu, view.gpus),
            )
        )
    else:
        driver_state = escape(view.state or "not known")
        parts.append(f'<p class="bad">No GPU is visible; driver state: {driver_state}.</p>')
    if view.orphans:
        summary = "Processes that hold a GPU and belong to no worker:"
        parts.append(f'<p class="bad">{summary}</p>{_holders(view.orphans, now=now)}')
    if view.observers:
        summary = "Processes of no worker that observe the GPUs or that somebody works with:"
        parts.append(f'<p class="quiet">{summary}</p>{_holders(view.observers, now=now)}')
    if view.xids:
        listed = "".join(f"<li>{_xid(xid, now=now)}</li>" for xid in view.xids)
        parts.append(f"<p>Driver errors (XIDs):</p><ul>{listed}</ul>")
    return html.section("GPUs", "\n".join(parts))


def _gpu(gpu: GpuView) -> tuple[str, ...]:
    name = f' <span class="quiet" title="{escape(gpu.uuid)}">{escape(gpu.name)}</span>'
    return (
        f"{escape(gpu.gpu)}{name}",
        state(gpu.tone, gpu.state),
        usage(gpu.memory_used, gpu.memory_total, "good"),
        amount(gpu.utilization, "{:.0%}"),
        amount(gpu.temperature, "{:.0f} °C"),
        amount(gpu.power, "{:.0f} W"),
        amount(gpu.processes, "{:.0f}"),
    )


def _holders(holders: tuple[Holder, ...], *, now: float) -> str:
    return table(
        {"Held by": "name", "Owner": "text", "Age": "number", "Memory": "number", "GPU": "text"},
        (_holder(holder, now=now) for holder in holders),
    )


def _holder(holder: Holder, *, now: float) -> tuple[str, ...]:
    gpus = ", ".join(key.gpu for key in holder.gpus if key.gpu) or "the driver"
    held = holder.memory_bytes
    return (
        f"{holder.process.pid}{quiet(holder.shown[:_LONGEST_COMMAND])}",
        escape(holder.owner),
        duration(max(0.0, now - start_timestamp(holder.process.identity))),
        UNKNOWN if held is None else format_size(held),
        f"{escape(gpus)}{quiet('' if holder.listed else 'not listed by the driver')}",
    )


def _xid(xid: XidView, *, now: float) -> str:
    tone = {"fatal": "bad", "warning": "warn", "unknown": "warn"}.get(xid.severity, "quiet")
    times = "" if xid.count == 1 else f", {xid.count:.0f} times"
    meaning = escape(describe(xid.code).meaning)
    return (
        f"{state(tone, xid.severity)} XID {xid.code}"
        f" on GPU {escape(xid.gpu)}: {meaning}{times}, last {ago(now - xid.last)}"
    )
