"""Pull mode's section of the configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import Section
from trainwarden_remediator.alertmanager import Matcher

_MATCHER = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"\\\n]*)"\s*'
)


def parse_matcher(text: str) -> Matcher:
    """`instance="node1"`, or with `!=`, `=~` or `!~`. Raises ValueError for anything else."""
    match = _MATCHER.fullmatch(text)
    if match is None:
        raise ValueError('not a matcher: write instance="node1", or with !=, =~ or !~')
    sign = match["sign"]
    if "~" in sign:
        try:
            re.compile(match["value"])
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return Matcher(match["name"], match["value"], "~" in sign, not sign.startswith("!"))


def _sound(text: str) -> str:
    parse_matcher(text)
    return text.strip()


class Pull(Section):
    """How Alertmanager is asked for alerts, so that nothing need listen for its webhooks."""

    match: Annotated[tuple[Annotated[str, AfterValidator(_sound)], ...], Field(min_length=1)]
    """Which alerts are this box's, as Alertmanager writes matchers: `instance="node1"`. All of them
    must be met, and `remediation!=""` is added. No other alert is ever acted upon."""
    interval: Annotated[Seconds, Field(ge=1)] = 5
    """How often it is asked."""
    resolve_after: Annotated[Seconds, Field(gt=0)] = 90
    """An alert that is not listed any more is over only after so long, in which the one that always
    fires was there. More than Prometheus's `--rules.alert.resend-delay` (1 minute when not given):
    until then an Alertmanager that has just started does not know what fires."""

    @property
    def matchers(self) -> Sequence[Matcher]:
        return [parse_matcher(text) for text in self.match]
