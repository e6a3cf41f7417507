"""`POST /heartbeat/<name>`: receives heartbeats."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from trainwarden_exporter.config_file.types import Name, parse_duration
from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.heartbeats.registry import (
    HeartbeatRegistry,
    TooManyHeartbeatsError,
    UnknownHeartbeatError,
)
from trainwarden_exporter.progress.log_lines import parse_count

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_STATUSES: dict[type[Exception], int] = {UnknownHeartbeatError: 404, TooManyHeartbeatsError: 429}


def heartbeat_routes(heartbeats: Callable[[], HeartbeatRegistry]) -> list[web.RouteDef]:
    """Returns the route; `heartbeats` returns the current registry.

    Optional parameters are `?step=`, `?interval=` (as `90` or `5m`) and `?run=`; the body is never
    read. Responses: 204; 400 for invalid parameters, 404 for an unknown name, 429 if there is no
    room for more unconfigured names.
    """

    async def beat(request: web.Request) -> web.Response:
        try:
            name, run = _name(request.match_info["name"]), request.query.get("run")
            step, interval = request.query.get("step"), request.query.get("interval")
            heartbeats().record(
                name,
                None if run is None else _name(run),
                step=None if step is None else _step(step),
                interval=None if interval is None else _interval(interval),
            )
        except (ValueError, TrainwardenError) as error:
            return web.Response(status=_STATUSES.get(type(error), 400), text=f"{error}\n")
        return web.Response(status=204)

    return [web.post("/heartbeat/{name}", beat)]


def _name(text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise ValueError("invalid name: only letters, digits and . _ : -") from None


def _step(text: str) -> int:
    step = parse_count(text)
    if step is None:
        raise ValueError("step is not a whole number")
    return step


def _interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds < float("inf"):
        raise ValueError("interval is not a duration")
    return seconds
