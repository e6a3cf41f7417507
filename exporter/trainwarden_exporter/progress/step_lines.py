"""Tells the lines in which a run logs its steps from other text that has such words. Pure.

A model's output, a plan or an error in the log may have `Step 9000: add the numbers` at the start
of a line. A run logs its steps in one form: the same prefix, the same word, the same text after the
number. Once lines of one form have come regularly, a line of another form is not believed, unless
its step fits. Another form takes over when the first no longer comes.

Lines such as `Epoch 2, Step 1` count the steps of an epoch, whose number is unknown until it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwarden_exporter.progress.events import Moved, StepReported

REGULAR_REPORTS = 3
"""Rising reports, each at another second, from which on a form is that of the run."""

SAME_SECONDS = 1.0
"""Seconds within which lines may have been printed at once, as a text is."""

SILENT_SECONDS = 60.0
SILENT_REPORTS = 3.0
"""Seconds, and multiple of the time between two reports, after which a form no longer comes."""

MAX_FORMS = 8


@dataclass(frozen=True, slots=True)
class StepForm:
    """A form of lines and its last report; times are Unix seconds."""

    form: str
    step: int
    timestamp: float
    reports: int = 1
    """Rising reports in a row, each at another second."""
    gap: int = 1
    """Steps between the last two reports."""
    seconds: float = 0.0
    """Time between the last two reports that did not come at once."""

    def next(self, event: StepReported) -> StepForm:
        """Returns the form after its next report."""
        apart = event.timestamp - self.timestamp
        if event.step <= self.step:
            return replace(self, step=event.step, timestamp=event.timestamp, reports=1)
        one = replace(self, step=event.step, gap=event.step - self.step)
        if apart < SAME_SECONDS or not event.dated:
            return one  # keeps the time of the first line of a text
        return replace(one, timestamp=event.timestamp, reports=self.reports + 1, seconds=apart)


@dataclass(frozen=True, slots=True)
class EpochSteps:
    """The count of lines that have the epoch and no total."""

    first: int
    current: int
    last: int
    """The last step of the current epoch."""
    whole: int = 0
    """Steps of an epoch; 0 while the count does not begin again with each."""

    def next(self, epoch: int, step: int) -> EpochSteps:
        """Returns the count after a line."""
        ended = epoch > self.current and step <= self.last
        return replace(self, current=epoch, last=step, whole=self.last if ended else self.whole)

    @property
    def step(self) -> int:
        """The step of the run."""
        return max(0, self.current - self.first) * self.whole + self.last


@dataclass(frozen=True, slots=True)
class StepLines:
    """What the lines with steps of one run look like."""

    own: str = ""
    """The form of the run; "" while unknown."""
    forms: tuple[StepForm, ...] = ()
    """The last ones, and that of the run."""
    epoch: EpochSteps | None = None

    def resolve(self, event: StepReported) -> tuple[StepLines, StepReported | Moved | None]:
        """Returns `event` in steps of the run; another form only shows that the run moves."""
        if not event.form:
            return self, event
        lines, believed = self._with_report(event)
        if not believed:
            return lines, Moved(event.timestamp) if event.dated else None
        if event.epoch is None or event.total is not None:
            return lines, event
        before = lines.epoch or EpochSteps(event.epoch, event.epoch, event.step)
        after = before.next(event.epoch, event.step)
        return replace(lines, epoch=after), replace(event, step=after.step)

    def shifted(self, seconds: float) -> StepLines:
        """Returns this on a clock that was set by `seconds`."""
        moved = tuple(replace(one, timestamp=one.timestamp + seconds) for one in self.forms)
        return replace(self, forms=moved)

    def _with_report(self, event: StepReported) -> tuple[StepLines, bool]:
        before, own = self._find(event.form), self._find(self.own)
        one = (
            StepForm(event.form, event.step, event.timestamp)
            if before is None
            else before.next(event)
        )
        others = [form for form in self.forms if form.form not in (event.form, self.own)]
        kept = [] if own is None or own.form == one.form else [own]
        lines = replace(self, forms=(*kept, *others[-MAX_FORMS:], one))
        regular = one.reports >= REGULAR_REPORTS
        if own is None:
            return replace(lines, own=one.form if regular else ""), True
        if one.form == own.form or own.step <= event.step <= own.step + own.gap:
            return lines, True
        silent = max(SILENT_SECONDS, SILENT_REPORTS * own.seconds)
        if regular and event.timestamp - own.timestamp > silent:
            return replace(lines, own=one.form), True
        return lines, False

    def _find(self, form: str) -> StepForm | None:
        return next((one for one in self.forms if one.form == form), None)
