"""Reads Prometheus' rule files, as far as a remediator is concerned: which alert names what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.yamlfile import read_text
from trainwarden_exporter.yamlnodes import child, compose, line_of

_HERE = Path(__file__).resolve()


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alerting rule; `labels` are those that it gives itself, `lines` where they stand."""

    path: Path
    line: int
    name: str
    labels: Mapping[str, str]
    lines: Mapping[str, int]

    @property
    def remediation(self) -> str:
        return self.labels.get("remediation", "")


def read_rules(paths: Iterable[Path]) -> tuple[AlertRule, ...]:
    """The alerting rules in these files. Raises ConfigError with all that cannot be read."""
    found: list[AlertRule] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found += parse_rules(read_text(path), path)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return tuple(found)


def parse_rules(text: str, path: Path) -> Iterator[AlertRule]:
    """The alerting rules in a rule file. Raises ConfigError where it is none."""
    root = compose(text, path)
    groups = child(root, "groups")
    if groups is None or not isinstance(groups[0], yaml.SequenceNode):
        raise ConfigError(Problem(path, line_of(root), "groups", "not a file of rules"))
    for group in groups[0].value:
        rules = child(group, "rules")
        for rule in rules[0].value if rules and isinstance(rules[0], yaml.SequenceNode) else ():
            name = child(rule, "alert")
            if name is not None and isinstance(name[0], yaml.ScalarNode):
                labels = dict(_labels(rule))
                yield AlertRule(
                    path,
                    name[1],
                    name[0].value,
                    {label: value for label, (value, _) in labels.items()},
                    {label: line for label, (_, line) in labels.items()},
                )


def find_rules(pattern: str | None, beside: Path) -> Sequence[Path]:
    """The rule files that `pattern` finds; without one those beside a configuration, or shipped.

    Raises ConfigError where a pattern finds none.
    """
    if pattern is not None:
        whole = Path(pattern)
        root = Path(whole.anchor) if whole.is_absolute() else Path()
        try:
            found = sorted(root.glob(str(whole.relative_to(root))))
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(Problem(whole, None, "", f"not a pattern: {error}")) from error
        if not found:
            raise ConfigError(Problem(whole, None, "", "no such file of rules"))
        return found
    for folder in (beside.parent / "rules" / "alerts", beside.parent / "alerts", _shipped()):
        if found := sorted(folder.glob("*.yml")):
            return found
    return ()


def _shipped() -> Path:
    """Where they lie in a checkout; an installed package has none."""
    return _HERE.parents[3] / "rules" / "alerts"


def _labels(rule: yaml.Node) -> Iterator[tuple[str, tuple[str, int]]]:
    labels = child(rule, "labels")
    if labels is not None and isinstance(labels[0], yaml.MappingNode):
        for key, value in labels[0].value:
            if isinstance(value, yaml.ScalarNode):
                yield str(key.value), (value.value, line_of(key))
