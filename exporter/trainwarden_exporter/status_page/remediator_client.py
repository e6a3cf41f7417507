"""Client of the remediator's status API; validates the response and bounds its size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.inference.http_client import HttpClient
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.holds import Holding, HoldPollers
from trainwarden_exporter.runtime.background_poller import BackgroundPoller
from trainwarden_exporter.runtime.resolved_path import resolved_path
from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_exporter.status_page.series import Tone

MAX_ENTRIES = 100
"""Maximum number of alerts and of actions taken from one response."""
MAX_WORKERS = 500

_Text = Annotated[str, StringConstraints(max_length=2000)]
_Moment = Annotated[FiniteFloat, Field(ge=0, le=1e11)]


class _StatusModel(BaseModel):
    # Ignores keys of a newer remediator.
    model_config = ConfigDict(frozen=True, extra="ignore")


class RemediatorAlert(_StatusModel):
    """An open alert of the remediator; `since` is a Unix time."""

    alert: _Text
    run: _Text
    worker: _Text
    since: _Moment
    tone: Tone
    who_acts: _Text
    """In the words of `who_acts`."""
    handling: _Text
    """What is done: follows `The remediator` where that acts, else a clause."""


class RemediatorAction(_StatusModel):
    """An action of the remediator; `at` is a Unix time."""

    run: _Text
    worker: _Text
    at: _Moment
    tone: Tone
    action: _Text
    """The kind of action, as a noun."""
    outcome: _Text
    in_progress: _Text = ""
    """Such as `is restarting demo/rollout-0`; empty for an action that ended."""


class FiringAlert(RemediatorAlert):
    """An active alert of this host at Alertmanager; `since` is a Unix time."""

    summary: _Text = ""
    first_step: _Text = ""
    """What an operator does first; empty while none is needed."""


class RemediatorHold(_StatusModel):
    """A hold in force, on everything without a run; `text` is such as `held by root`."""

    run: _Text
    worker: _Text
    who_acts: _Text
    text: _Text

    def covers(self, run: str, worker: str) -> bool:
        """Whether actions on the worker, or on some worker of the run, are held."""
        return not self.run or (self.run == run and self.worker in ("", worker))


class RemediatorStatus(_StatusModel):
    """Status of the remediator. Alerts are sorted oldest first, actions newest first."""

    config_file: _Text = ""
    """Its remediator.yml,"""
    config_read_at: _Moment | None = None
    """and when it read it (Unix seconds)."""
    exporter_file: _Text = ""
    """The exporter.yml that it reads."""
    workers_hash: int | None = None
    """Hash of the workers in that file."""
    mode: Literal["observe", "act"]
    may_restart: Annotated[tuple[_Text, ...], Field(max_length=MAX_WORKERS)] | None = None
    """The workers that it may restart, as RUN/WORKER; None from a version that does not say."""
    may_restart_stalled: Annotated[tuple[_Text, ...], Field(max_length=MAX_WORKERS)] = ()
    """The runs whose trainer it may restart."""
    without_checkpoints: Annotated[tuple[_Text, ...], Field(max_length=MAX_WORKERS)] = ()
    """The runs that it restarts only if they are started with `--checkpoints`."""
    calls: bool = True
    """Whether it has a receiver that it notifies of what it gives up."""
    given_up: Annotated[tuple[_Text, ...], Field(max_length=MAX_WORKERS)] = ()
    """The workers that it gave up, as RUN/WORKER, whose fault is the same if it is still seen."""
    tone: Tone
    verdict: _Text
    who_acts: _Text = YOU
    how: _Text = ""
    """Tone, headline, who acts and what is done, as on the remediator's own page."""
    operator_needed: _Text = ""
    """A problem of the remediator that an operator must solve, as a sentence; empty without one."""
    open_alerts: Annotated[int, Field(ge=0)]
    """Number of open alerts; `alerts` may hold fewer."""
    alerts: Annotated[tuple[RemediatorAlert, ...], Field(max_length=MAX_ENTRIES)]
    actions: Annotated[tuple[RemediatorAction, ...], Field(max_length=MAX_ENTRIES)]
    firing: Annotated[tuple[FiringAlert, ...] | None, Field(max_length=MAX_ENTRIES)] = None
    """Active alerts at Alertmanager, worst first; None if they are not known."""
    firing_count: Annotated[int, Field(ge=0)] | None = None
    """Number of active alerts; `firing` may hold fewer."""
    unhandled_count: Annotated[int, Field(ge=0)] = 0
    """Number of active alerts that an operator acts on."""
    alerts_problem: _Text = ""
    """Why the active alerts are not known."""
    holds: Annotated[tuple[RemediatorHold, ...], Field(max_length=MAX_ENTRIES)] = ()
    """The holds in force, the widest and longest first."""
    answered_at: _Moment | None = None
    """When it answered so (Unix seconds); None for an answer of this moment."""

    @property
    def held(self) -> tuple[WorkerKey, ...]:
        """The runs and workers on hold; an empty name means all."""
        return tuple(WorkerKey(hold.run, hold.worker) for hold in self.holds)


def subject(run: str, worker: str) -> str:
    """Returns what an alert, an action or a hold is about."""
    return "/".join(part for part in (run, worker) if part) or "the host"


def parse_status(body: bytes) -> RemediatorStatus:
    """Parses `body` (JSON). Raises ValueError with a text that repeats nothing of it."""
    try:
        return RemediatorStatus.model_validate_json(body)
    except ValidationError:
        raise ValueError("invalid response") from None


TIMEOUT_SECONDS = 5.0
"""Timeout in seconds: a loaded host may take most of it, and it delays the status page."""

SILENCE_SECONDS = 30.0
"""Seconds for which silence proves nothing: TrainingRemediatorDown fires after as many. That nobody
listens at its address is known at once."""

_QUESTION = HttpRequest("standing", "/status.json", limit=512 << 10, timeout=TIMEOUT_SECONDS)


@dataclass(frozen=True, slots=True)
class ExporterIdentity:
    """The configuration of this exporter, by which its own remediator is recognised."""

    file: Path | None
    workers_hash: int

    def is_served_by(self, status: RemediatorStatus) -> bool:
        """Whether the remediator reads the same file, or in a container another copy of it."""
        if status.workers_hash == self.workers_hash:
            return True
        return self.file is not None and status.exporter_file == resolved_path(
            str(self.file.absolute())
        )


async def fetch_status(
    config: RemediatorConfig | None,
    exporter: ExporterIdentity,
    *,
    last_known: Callable[[], RemediatorStatus | None] = lambda: None,
) -> RemediatorStatus | str | None:
    """Returns the status of the `exporter`'s remediator, or why there is none.

    None if no remediator is configured. At a port that is not reserved, the remediator of another
    account may answer. `last_known` stands in for an answer that does not come in time.
    """
    if config is None:
        return None
    try:
        context = None if config.tls is None else await asyncio.to_thread(config.tls.context)
    except (OSError, ValueError) as error:  # the file existed when the configuration was loaded
        return f"CA file unusable: {error}"
    async with HttpClient(TIMEOUT_SECONDS, context=context).connect() as put:
        answer = await put(f"{config.url}{_QUESTION.path}", _QUESTION)
    if answer.outcome is HttpOutcome.SILENT and (known := last_known()) is not None:
        return known
    status = parse_answer(answer)
    if isinstance(status, RemediatorStatus) and not exporter.is_served_by(status):
        return "the remediator of another exporter.yml answers at its address"
    return status


HOLDS_INTERVAL = 15.0
"""Seconds between two questions for the holds."""


def hold_pollers(config: RemediatorConfig | None, exporter: ExporterIdentity) -> HoldPollers:
    """Returns what asks the `exporter`'s remediator in the background, for its holds."""
    if config is None:
        return HoldPollers({})

    def poll() -> RemediatorStatus:
        status = asyncio.run(fetch_status(config, exporter))
        if not isinstance(status, RemediatorStatus):
            raise CollectError(f"the holds are not known: {status}")
        return status

    name = "holds of the remediator"
    poller: BackgroundPoller[Holding] = BackgroundPoller(name, poll, interval=HOLDS_INTERVAL)
    return HoldPollers({(config, exporter): poller})


def last_known_status(pollers: HoldPollers, now: float) -> RemediatorStatus | None:
    """Returns the last answer to the `pollers`, while it is younger than SILENCE_SECONDS."""
    for _, seen in pollers.last_results():
        if isinstance(seen.value, RemediatorStatus) and now - seen.timestamp < SILENCE_SECONDS:
            return seen.value.model_copy(update={"answered_at": seen.timestamp})
    return None


def parse_answer(answer: HttpResponse) -> RemediatorStatus | str:
    """Returns the status in a response, or why there is none."""
    if answer.outcome is not HttpOutcome.ANSWERED:
        return answer.detail
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return "authentication required, and no password is configured for this page"
    if answer.status != HTTPStatus.OK:
        return f"response with status {answer.status}"
    try:
        return parse_status(answer.body)
    except ValueError as error:
        return str(error)
