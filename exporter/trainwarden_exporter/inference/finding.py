"""Tells from a worker's processes which servers they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainwarden_exporter.inference.servingcommand import ENGINE_PORTS, Serving, local_url
from trainwarden_exporter.processes.sockets import Listener


@dataclass(frozen=True, slots=True)
class Candidate:
    """A living process of a worker. `started` is in unix seconds."""

    started: float
    arguments: tuple[str, ...] = ()
    serving: Serving | None = None
    listeners: tuple[Listener, ...] = ()
    root: bool = False
    """Whether it is the worker itself, and no child of it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server at `url`, of a process that started at `started`."""

    engine: str
    url: str
    started: float
    metrics_url: str | None = None
    model: str | None = None


def youngest(candidates: Iterable[Candidate]) -> float | None:
    """When the youngest of the worker's own processes started."""
    return max((one.started for one in candidates if one.root), default=None)


def start_of(url: str, candidates: Sequence[Candidate]) -> float | None:
    """When the process started that serves `url`, as far as it can be told; None for none.

    Where no command line names the port, it is the youngest of the worker's own.
    """
    port = urlsplit(url).port
    serving = [one.started for one in candidates if one.serving and one.serving.port == port]
    return max(serving, default=None) or youngest(candidates)


def find_servers(
    engine: str | None,
    candidates: Sequence[Candidate],
    patterns: Sequence[tuple[str, re.Pattern[str]]] = (),
) -> tuple[Found, ...]:
    """The servers among the processes of one worker, by their command lines or by their ports."""
    found: dict[str, Found] = {}
    for one in candidates:
        serving = one.serving
        if serving is None or engine not in (None, serving.engine):
            continue
        ports = [listener.port for listener in one.listeners]
        url = serving.url(ports[0] if len(ports) == 1 else None)
        if url is not None:
            found[url] = Found(serving.engine, url, one.started, serving.metrics_url, serving.model)
    if not found:
        found = {one.url: one for one in _by_ports(engine, candidates, patterns)}
    return tuple(sorted(found.values(), key=lambda one: one.url))


def _by_ports(
    engine: str | None,
    candidates: Sequence[Candidate],
    patterns: Sequence[tuple[str, re.Pattern[str]]],
) -> Iterator[Found]:
    """Of processes with an unknown command, those whose port leaves no choice."""
    for one in candidates:
        command = " ".join(one.arguments)
        kind = engine or next((name for name, look in patterns if look.search(command)), None)
        usual = ENGINE_PORTS.get(kind or "")
        chosen = [listener for listener in one.listeners if listener.port == usual]
        if not chosen and len(one.listeners) == 1:
            chosen = list(one.listeners)
        if kind is not None and chosen:
            yield Found(kind, local_url(chosen[0].address, chosen[0].port), one.started)


def assign(
    known: Sequence[Found | None], found: Sequence[Found], expected: int
) -> list[Found | None]:
    """`found` in the places of the servers known before; None for one that has not been found yet.

    A server keeps its place by its URL. A new one takes the place of one that is gone, and there
    are never fewer places than servers expected.
    """
    by_url = {one.url: one for one in found}
    places = [by_url.pop(one.url, one) if one else None for one in known]
    places += [None] * (expected - len(places))
    gone = [
        index
        for index, one in enumerate(places)
        if one is None or one.url not in {it.url for it in found}
    ]
    for one in by_url.values():
        if gone:
            places[gone.pop(0)] = one
        else:
            places.append(one)
    return places
