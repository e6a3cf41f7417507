"""The page on which an operator holds, resumes and approves actions, such as from a phone.

Each form carries a token that is valid once and for ten minutes, and the web server accepts its
submission only from a page of this server: another web page cannot use the operator's login.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape

from aiohttp import web

from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.webserver import html
from trainwarden_remediator.api.holds import Command, run_approve, run_command, run_hold, run_resume
from trainwarden_remediator.api.middleware import (
    LOGIN_CHALLENGE,
    LOGIN_TEXT,
    authenticate,
    unauthorized,
    with_memory_error_response,
)
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import Hold, read_holds
from trainwarden_remediator.journal.approvals import APPROVAL_SECONDS, Proposal

TOKEN_SECONDS = 600.0
MAX_TOKENS = 100
"""Tokens that are valid at the same time; the oldest are dropped first."""
MAX_FORM_BYTES = 8 << 10
DURATIONS = {"1h": "1 hour", "8h": "8 hours", "": "until it is resumed"}
_POLICY = (
    f"default-src 'none'; style-src {html.STYLE_SOURCE}; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_COMMANDS: dict[str, Command] = {"hold": run_hold, "resume": run_resume, "approve": run_approve}


class OneTimeTokens:
    """Tokens of forms, each valid once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiry: dict[str, float] = {}

    def issue(self) -> str:
        """Returns a new token."""
        while len(self._expiry) >= MAX_TOKENS:
            del self._expiry[next(iter(self._expiry))]
        token = secrets.token_urlsafe(32)
        self._expiry[token] = self._clock() + TOKEN_SECONDS
        return token

    def use(self, token: str) -> bool:
        """Returns whether `token` is valid, and invalidates it."""
        return self._expiry.pop(token, 0.0) > self._clock()


def hold_page_routes(remediator: Remediator) -> list[web.RouteDef]:
    """Returns the routes `/hold`; they require the same login as the reports."""
    tokens = OneTimeTokens()

    async def show(request: web.Request) -> web.Response:
        if await authenticate(request, remediator, as_password=True) is None:
            return unauthorized(LOGIN_CHALLENGE, LOGIN_TEXT)
        return await _page(remediator, tokens, "")

    async def submit(request: web.Request) -> web.Response:
        if (by := await authenticate(request, remediator, as_password=True)) is None:
            return unauthorized(LOGIN_CHALLENGE, LOGIN_TEXT)
        if (request.content_length or 0) > MAX_FORM_BYTES:
            return web.Response(status=413, text="form too large\n")
        form = {name: str(value) for name, value in (await request.post()).items()}
        if not tokens.use(form.get("token", "")):
            return await _page(remediator, tokens, "The form was used or is too old: try again.")
        command = _COMMANDS.get(form.get("command", ""))
        if command is None:
            return web.Response(status=400, text="unknown command\n")
        query = _query(command, form)
        who = f"{by} from {request.remote or 'an unknown address'}, on the page"
        why = service.normalize_reason(form.get("why", ""))
        answer = await run_command(remediator, command, query, who, why)
        return await _page(remediator, tokens, (answer.text or "").strip(), status=answer.status)

    return [
        web.get("/hold", with_memory_error_response(show)),
        web.post("/hold", with_memory_error_response(submit, "out of memory; hold failed")),
    ]


def _query(command: Command, form: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters of a command, from the fields of its form."""
    if command is run_approve:
        return {name: form.get(name, "") for name in ("incident", "proposed")}
    query = {}
    if scope := form.get("scope"):
        run, _, worker = scope.partition("/")
        query = {"run": run, "worker": worker}
    if command is run_hold and form.get("for"):
        query["for"] = form["for"]
    return query


async def _page(
    remediator: Remediator, tokens: OneTimeTokens, message: str, *, status: int = 200
) -> web.Response:
    now = remediator.clock.now()
    holds = await asyncio.to_thread(read_holds, remediator.setup.config.hold_file, now)
    proposals: Sequence[Proposal] = ()
    with suppress(JournalError):
        proposals = await asyncio.to_thread(remediator.journal.proposals)
    text = html.render(
        program="remediator",
        status=f"mode {remediator.setup.config.mode}",
        tone="warn" if holds else "good",
        headline=message or ("Actions are held." if holds else "No actions are held."),
        sections=_sections(remediator, holds, proposals, tokens.issue()),
        now=now,
        links={"status": "./"},
    )
    headers = {"Content-Security-Policy": _POLICY}
    return web.Response(text=text, content_type="text/html", status=status, headers=headers)


def _sections(
    remediator: Remediator, holds: Sequence[Hold], proposals: Sequence[Proposal], token: str
) -> str:
    keys = sorted(remediator.setup.selectors)
    scopes = _choices([*(key.run for key in keys), *map("/".join, keys)])
    durations = _select("for", "For how long", DURATIONS)
    why = '<label>Why <input name="why" maxlength="200" autocomplete="off"></label>'
    parts = [
        html.section(
            "Hold", _form("hold", token, f"{_select('scope', 'What', scopes)}{durations}{why}")
        )
    ]
    if holds:
        listed = "".join(f"<li>{escape(f'{one.scope} {one.description}')}</li>" for one in holds)
        scopes = _choices([one.scope for one in holds if not one.everything])
        form = _form("resume", token, f"{_select('scope', 'What', scopes)}{why}")
        parts.insert(0, html.section("In force", f'<ul class="lines">{listed}</ul>{form}'))
    if proposals:
        forms = "".join(_approval(one, token) for one in proposals)
        hint = (
            '<p class="quiet">The mode is observe. An approval counts once and for '
            f"{format_duration(APPROVAL_SECONDS)}; every guard of mode act applies.</p>"
        )
        parts.insert(0, html.section("Proposed actions", f"{hint}{forms}"))
    return "\n".join(parts)


def _approval(proposal: Proposal, token: str) -> str:
    what = escape(f"#{proposal.incident} {proposal.alert}: act on {proposal.target or 'it'}")
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{value}">'
        for name, value in (("incident", proposal.incident), ("proposed", repr(proposal.at)))
    )
    return _form("approve", token, f"<p>{what}</p>{hidden}", "Approve once")


def _form(command: str, token: str, fields: str, label: str = "") -> str:
    button = f'<button name="command" value="{command}">{label or command.capitalize()}</button>'
    return (
        f'<form method="post" action="hold"><input type="hidden" name="token" value="{token}">'
        f"{fields}{button}</form>"
    )


def _choices(scopes: Iterable[str]) -> dict[str, str]:
    return {"": "everything", **{scope: scope for scope in scopes}}


def _select(name: str, label: str, choices: Mapping[str, str]) -> str:
    options = "".join(
        f'<option value="{escape(value)}">{escape(text)}</option>'
        for value, text in choices.items()
    )
    return f'<label>{escape(label)} <select name="{name}">{options}</select></label>'
