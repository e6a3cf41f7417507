"""Valid settings that will not work on this host."""

from __future__ import annotations

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.credentials.bearer_tokens import BearerTokens
from trainwarden_remediator.journal.file_modes import mode_problems
from trainwarden_remediator.notify.http import secret_problem


def config_warnings(setup: Setup) -> list[str]:
    """Returns warnings about valid settings that will not work on this host."""
    config = setup.config
    found = mode_problems(config.journal)
    if config.token_file is not None:
        try:
            if config.token_file.exists():
                BearerTokens(config.token_file).read()
            else:
                found.append(
                    f"{config.token_file} does not exist: `make up` creates it when it starts;"
                    " otherwise create it, because without it all webhooks are rejected"
                )
        except (ConfigError, OSError) as error:
            found.append(f"all webhooks would be rejected: {error}")
    for index, target in enumerate(config.targets):
        found += [f"targets[{index}].{warning}" for warning in target.restart_method.warnings()]
    for index, receiver in enumerate(config.notify.receivers):
        if problem := secret_problem(receiver):
            found.append(f"notify.receivers[{index}]: cannot send: {problem}")
    return found + [
        f"worker {key.worker} of run {key.run} is not a target: it is observed, never restarted"
        for key in setup.selectors
        if config.target(key) is None
    ]
