"""Reads a journal and tells of it: what the command `report` and the web page give."""

from __future__ import annotations

from pathlib import Path

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.reporting.incident import Style, render
from trainwarden_remediator.reporting.night import render_nights
from trainwarden_remediator.reporting.reading import opened, read_account, read_accounts

MOST_BACK = 366 * 86400.0


def tell_incident(journal: Path, incident: int, style: Style, now: float) -> str | None:
    """The report of that incident; None where there is none. Raises JournalError."""
    if not 0 < incident < 1 << 63:
        return None
    with opened(journal) as connection:
        account = read_account(connection, incident)
    return None if account is None else render(account, style, now)


def tell_nights(journal: Path, since: float, style: Style, now: float) -> str:
    """The report of all incidents since then (Unix seconds). Raises JournalError."""
    if since < now - MOST_BACK:
        raise JournalError("write a time of at most a year, such as 12h or 7d")
    with opened(journal) as connection:
        accounts = read_accounts(connection, since)
    return render_nights(accounts, style, since, now)
