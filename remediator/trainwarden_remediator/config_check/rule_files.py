"""Reads the alerting rules in Prometheus rule files: names, labels, playbooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainwarden_exporter.config_file.loader import read_text
from trainwarden_exporter.config_file.yaml_nodes import child, compose, line_of
from trainwarden_exporter.exceptions import ConfigError, Problem

_HERE = Path(__file__).resolve()


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alerting rule; `labels`: the labels that it sets, `lines`: their lines in the file."""

    path: Path
    name: str
    labels: Mapping[str, str]
    lines: Mapping[str, int]

    @property
    def remediation(self) -> str:
        return self.labels.get("remediation", "")


def read_rules(paths: Iterable[Path]) -> tuple[AlertRule, ...]:
    """Returns the alerting rules in these files. Raises ConfigError with all problems."""
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
    """Yields the alerting rules in a rule file. Raises ConfigError if the file is invalid."""
    root = compose(text, path)
    groups = child(root, "groups")
    if groups is None or not isinstance(groups[0], yaml.SequenceNode):
        raise ConfigError(Problem(path, line_of(root), "groups", "not a rule file"))
    for group in groups[0].value:
        rules = child(group, "rules")
        for rule in rules[0].value if rules and isinstance(rules[0], yaml.SequenceNode) else ():
            name = child(rule, "alert")
            if name is not None and isinstance(name[0], yaml.ScalarNode):
                labels = {label: value for label, value, _ in _labels(rule)}
                lines = {label: line for label, _, line in _labels(rule)}
                yield AlertRule(path, name[0].value, labels, lines)


def find_rules(pattern: str | None, beside: Path) -> Sequence[Path]:
    """Returns the rule files that match `pattern`; by default those beside `beside`, or shipped.

    Raises ConfigError if the pattern matches no file.
    """
    if pattern is not None:
        path = Path(pattern)
        root = Path(path.anchor) if path.is_absolute() else Path()
        try:
            found = sorted(root.glob(str(path.relative_to(root))))
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(Problem(path, None, "", f"not a pattern: {error}")) from error
        if not found:
            raise ConfigError(Problem(path, None, "", "no such rule file"))
        return found
    for folder in (beside.parent / "rules" / "alerts", beside.parent / "alerts", _shipped()):
        if found := sorted(folder.glob("*.yml")):
            return found
    return ()


def _shipped() -> Path:
    """Returns the directory of the shipped rules in a checkout; an installed package has none."""
    return _HERE.parents[3] / "rules" / "alerts"


def _labels(rule: yaml.Node) -> Iterator[tuple[str, str, int]]:
    labels = child(rule, "labels")
    if labels is not None and isinstance(labels[0], yaml.MappingNode):
        for key, value in labels[0].value:
            if isinstance(value, yaml.ScalarNode):
                yield str(key.value), value.value, line_of(key)
