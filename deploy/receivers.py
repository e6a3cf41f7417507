"""The section `notify` of a remediator.yml, which a stack keeps that makes that file itself."""

from __future__ import annotations

from pathlib import Path

import yaml

from stack import StackError
from trainwarden_exporter.config_file.loader import Section, load
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.config.schema import Config


class _ReceiversAlone(Section):
    notify: NotifySettings


def alone_in(path: Path) -> str:
    """The section `notify` of a file that has no other; empty if it has, or is no YAML.

    Raises StackError with the line of a mistake in it: the copy has others.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    if not isinstance(content, dict) or content.keys() != {"notify"}:
        return ""
    try:
        load(path, _ReceiversAlone)
    except ConfigError as error:
        raise StackError(str(error)) from error
    return yaml.safe_dump(content, sort_keys=False)


def section_of(path: Path) -> str:
    """The section `notify` of a file that an operator may have completed; empty without one.

    Raises StackError if the file is wrong: what it says must not be lost.
    """
    try:
        content = load(path, Config) if path.exists() else None
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) if content else {}
    except (ConfigError, OSError) as error:
        raise StackError(str(error)) from error
    section = {name: value for name, value in settings.items() if name == "notify"}
    return yaml.safe_dump(section, sort_keys=False) if section else ""
