"""The section `notify` of a remediator.yml: who is called, of what, and by which means."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section

Occasion = Literal["gave_up", "held", "breaker", "asked", "silent", "acted", "healed", "not_healed"]
"""What a person can be told of."""

URGENT: tuple[Occasion, ...] = ("gave_up", "held", "breaker", "asked", "silent")
"""What needs a person; the rest is only good to know."""

LASTING: tuple[Occasion, ...] = ("gave_up", "held", "asked")
"""What is no news when the same alert has only gone and come back."""

Kind = Literal["slack", "discord", "mattermost", "ntfy", "json"]


def check_url(text: str) -> str:
    """`text`, if a message can be sent there. Raises ValueError, which never repeats it."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not a URL: write https://host/path") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("not a URL: write https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("no user, password or #fragment here; a token goes into token_file")
    return text


def _check_secret_url(url: SecretStr) -> SecretStr:
    check_url(url.get_secret_value())
    return url


class Receiver(Section):
    """Somewhere a message can be sent to: a chat, a phone, a program of your own."""

    name: Name
    """What journal, metrics and `notify-test` know it by."""
    kind: Kind
    """In which form it takes a message: `slack`, `discord` and `mattermost` take what their
    incoming webhooks do, `ntfy` a topic's; `json` is a form of our own, for a program of yours."""
    url: Annotated[SecretStr, AfterValidator(_check_secret_url)] | None = None
    """Where messages are posted to. The address of a webhook is a secret: better in `url_file`."""
    url_file: LocalPath | None = None
    """A file that holds the address; read anew for each message."""
    token_file: LocalPath | None = None
    """A file with a bearer token that is sent along, where the receiver asks for one; read anew for
    each message."""
    about: Annotated[tuple[Occasion, ...], Field(min_length=1)] = URGENT
    """What it is told of: that the remediator `gave_up` on something; that an alert makes it hold
    restarts (`held`); that the `breaker` has latched; that a playbook `asked` for a person; that
    no alerts come any more (`silent`); that something was begun (`acted`), and
    whether that has `healed` or `not_healed` the trouble."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if self.url is None and self.url_file is None:
            raise MisplacedError("needed: the address, in `url` or in a file", "url_file")
        if self.url is not None and self.url_file is not None:
            raise MisplacedError("`url` is given already", "url_file")
        return self

    @model_validator(mode="after")
    def _is_told_each_once(self) -> Self:
        for index, occasion in enumerate(self.about):
            if occasion in self.about[:index]:
                raise MisplacedError("named twice", "about", index)
        return self


class Notify(Section):
    """Who is called when a person is needed, by the remediator itself.

    Alertmanager tells its receivers of alerts; this works when Alertmanager does not.
    """

    receivers: tuple[Receiver, ...] = ()
    """Who is called."""
    box: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    """What messages call this box; its host name when not given."""
    quiet: Seconds = 3600
    """For so long after a message the same is not told again of the same worker and alert, also
    when the alert has gone and come back."""
    patience: Annotated[Seconds, Field(gt=0)] = 86400
    """How long it is tried to deliver a message; then it is dropped, and counted as such."""

    @model_validator(mode="after")
    def _receivers_are_distinct(self) -> Self:
        names = [receiver.name for receiver in self.receivers]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise MisplacedError(f"a second receiver {name}", "receivers", index, "name")
        return self
