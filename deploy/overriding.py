"""Changes to the shipped alerts that need no edit of a shipped file: off, another severity or wait.

Numbers are not changed here: they are limits in exporter.yml, which the rules compare with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from ruleset import RULES, Ruleset, read_shipped
from trainwarden_exporter.config_file.loader import LocatedError, Section, load, problem_at
from trainwarden_exporter.config_file.types import Seconds
from trainwarden_exporter.exceptions import ConfigError

HEARTBEAT = "TrainingWatchdog"
"""The remediator listens for it, at the severity and as promptly as it is shipped."""
Severity = Literal["critical", "warning", "info"]
Rule = Mapping[str, Any]


class Override(Section):
    """One alert, and how it is to differ from the shipped one."""

    alert: str
    """Its name."""
    of: Severity | None = None
    """Which of two alerts of that name is meant, by its shipped severity; both when not given."""
    enabled: bool = True
    """`false` leaves it out of the rules."""
    severity: Severity | None = None
    """`critical` wakes the on-call, `warning` is for today, `info` notifies nobody."""
    wait: Seconds | None = Field(default=None, alias="for")
    """How long it must hold before it fires; this comes on top of what the rule looks back over."""

    @model_validator(mode="after")
    def _says_something(self) -> Override:
        if self.enabled and self.severity is None and self.wait is None:
            raise LocatedError("changes nothing: say enabled, severity or for")
        if not self.enabled and (self.severity is not None or self.wait is not None):
            raise LocatedError("nothing else matters of an alert that is off", "enabled")
        return self

    def means(self, rule: Rule) -> bool:
        """Whether it is about this rule."""
        return rule.get("alert") == self.alert and self.of in (None, rule["labels"]["severity"])


class Overrides(Section):
    """What `overrides.yml` holds."""

    alerts: tuple[Override, ...] = ()
    """Each alert at most once."""


def read_overrides(path: Path) -> Overrides:
    """The file at `path`, held against the rules of this project.

    Raises ConfigError naming every problem with its line: an alert that there is none of, too.
    """
    overrides = load(path, Overrides)
    rules = [rule for groups in read_shipped(RULES).values() for rule in _each(groups)]
    problems = [
        problem_at(path, message, "alerts", index, key)
        for index in range(len(overrides.alerts))
        for key, message in _misfits(overrides.alerts, index, rules)
    ]
    if problems:
        raise ConfigError(*problems)
    return overrides


def _each(groups: Sequence[Rule]) -> Iterator[Rule]:
    return (rule for group in groups for rule in group["rules"])


def _misfits(
    overrides: Sequence[Override], index: int, rules: Sequence[Rule]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the one at `index`, each with the key that says so."""
    override = overrides[index]
    named = [rule for rule in rules if rule.get("alert") == override.alert]
    meant = [rule for rule in named if override.means(rule)]
    if not named:
        yield "alert", f"no shipped alert is called {override.alert!r}"
        return
    if override.alert == HEARTBEAT:
        yield "alert", "the remediator listens for this one, which stays as it is"
    if not meant:
        severities = " and ".join(sorted({rule["labels"]["severity"] for rule in named}))
        yield "of", f"there is none of that severity, only {severities}"
    if any(earlier.means(rule) for earlier in overrides[:index] for rule in meant):
        yield "alert", "is changed above already"
    if override.severity is not None:
        shipped = {
            rule["labels"]["severity"]
            for rule in named
            if (changed := _changed(rule, overrides)) is not None
            and changed["labels"]["severity"] == override.severity
        }
        if len(shipped) > 1:  # the worse could no longer mute the milder
            yield "severity", "another alert of that name has it: say `of`, or change that too"


def overridden(shipped: Ruleset, overrides: Overrides) -> dict[str, list[dict[str, Any]]]:
    """The rules as they are to be, without groups that have none left."""
    return {
        name: [
            {**group, "rules": kept}
            for group in groups
            if (kept := list(filter(None, (_changed(r, overrides.alerts) for r in group["rules"]))))
        ]
        for name, groups in shipped.items()
    }


def _changed(rule: Rule, overrides: Sequence[Override]) -> Rule | None:
    """The rule as it is to be; None when it is off."""
    override = next((one for one in overrides if one.means(rule)), None)
    if override is None:
        return rule
    if not override.enabled:
        return None
    changed = dict(rule)
    if override.severity is not None:
        changed["labels"] = {**rule["labels"], "severity": override.severity}
    if override.wait is not None:
        changed["for"] = f"{override.wait * 1000:.0f}ms"
    return changed
