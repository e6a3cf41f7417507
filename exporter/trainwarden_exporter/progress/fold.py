"""What each thing that is seen makes of the course of a run. Pure.

Several sources speak of one run. They lag (a log is flushed once in a hundred steps, a checkpoint
is complete minutes after its step), so of all that is said, the highest step counts. And they grow
stale: a run that resumes from step 1500 has the checkpoint of step 1870 on disk still, and that
must not count. What tells one from the other is the attempt. It begins anew

- when the trainer starts: its process is a new one, or a line of its log says so;
- when a source goes back: it says less than it said itself, at a later time;
- when sources contradict each other (see `attempt.contradiction`), which is how it shows where
  nobody saw the start.

Only what was said within the present attempt counts, by its time: the time of the line, the last
change of the file, the completion of the checkpoint. So the highest step of the attempt wins over
what lags in it, and the lower step of the attempt over the higher one of an earlier attempt. What
is said once more, as by lines that are read a second time, changes nothing.

A record (a checkpoint, a state file) proves no contradiction: it speaks of a step that lies back.
Lines that were there before anybody looked bear no time of their own, as a rule. They say how
things stand; they make no durations, and they do not outdo what was seen to happen.
"""

from __future__ import annotations

from dataclasses import replace

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.attempt import Attempt, Reading, contradiction
from trainwarden_exporter.progress.course import Course
from trainwarden_exporter.progress.observations import (
    Advanced,
    Finished,
    Interrupted,
    Observation,
    PhaseBegan,
    PhaseEnded,
    Planned,
    Started,
    StepSeen,
)
from trainwarden_exporter.progress.pace import BURST, ONE_SIGN, RECENT, Mark, Sign

_ASIDE = (Phase.SAVING, Phase.EVALUATING)
"""Phases that are no part of a step."""


def after(course: Course, seen: Observation) -> Course:
    """The course with what is seen now."""
    match seen:
        case StepSeen():
            return _heard(course, seen)
        case Started():
            return _started(course, seen)
    if seen.timestamp < course.attempt.began:
        return course
    match seen:
        case Advanced():
            return _moved(course, seen)
        case Planned(total):
            return replace(course, total=total) if total > 0 else course
        case Interrupted(timestamp):
            return replace(course, interrupted=max(course.interrupted, timestamp))
        case PhaseBegan(phase, timestamp):
            late = course.since is not None and timestamp < course.since
            return course if late or course.finished else _turned(course, phase, timestamp)
        case PhaseEnded(phase, timestamp):
            return _turned(course, Phase.TRAINING, timestamp) if phase is course.phase else course
        case Finished(timestamp):
            return _turned(course, Phase.FINISHED, timestamp)


def _heard(course: Course, seen: StepSeen) -> Course:
    number, known = course.attempt.number, course.readings.get(seen.source)
    if known is not None and seen.timestamp < known.timestamp:
        return course
    if seen.timestamp < course.attempt.began:
        return _with(course, seen.source, Reading.of(seen, number - 1))
    if known is None or known.attempt != number:
        course = _with(course, seen.source, Reading.of(seen, number))
    elif seen.step >= known.step:
        course = _with(course, seen.source, known.after(seen))
    elif known.outdoes(seen):
        return course
    elif not seen.dated and known.sure is not None:
        return _read_again(course, seen, known.surely)
    else:
        course = _begun(course, Attempt(began=seen.timestamp), carry=False)
        course = _with(course, seen.source, Reading.of(seen, course.attempt.number))
        course = _entered(course, Phase.STARTING, seen.timestamp)
    return _counted(_reconciled(course), seen)


def _read_again(course: Course, seen: StepSeen, known: Reading) -> Course:
    """With a line out of many that are read a second time, from before what is `known`."""
    marks = tuple(mark for mark in course.marks if mark.dated)
    course = _with(replace(course, marks=marks), seen.source, known)
    return _heard(course, seen) if seen.step > known.step else course


def _with(course: Course, source: str, reading: Reading) -> Course:
    return replace(course, readings={**course.readings, source: reading})


def _reconciled(course: Course) -> Course:
    number = course.attempt.number
    place = contradiction(one for one in course.readings.values() if one.attempt == number)
    if place is None:
        return course
    return _begun(course, Attempt(began=place.began, before=place.stale))


def _started(course: Course, seen: Started) -> Course:
    began = seen.timestamp
    # A start that was there to be read may be the one that is known.
    known = not seen.dated and any(mark.dated for mark in course.marks)
    if began <= course.attempt.began or known:
        return course
    course = _begun(
        course, Attempt(began=began, started=True, witnessed=seen.witnessed, told=seen.step)
    )
    if course.marks:
        return course
    if seen.witnessed:
        return replace(course, phase=Phase.STARTING, since=began, sign=began)
    return replace(course, phase=None, since=None, sign=seen.noticed)


def _begun(course: Course, attempt: Attempt, *, carry: bool = True) -> Course:
    """In a new attempt, with what was said since that began if it is to be carried along.

    Right after a start, it is that start which is only now seen well.
    """
    old, same = course.attempt, course.starting
    number = old.number + 1

    def belongs(said: Mark | Sign | Reading) -> bool:
        known = said.dated or not attempt.witnessed
        return carry and known and said.timestamp >= attempt.began

    kept = tuple(mark for mark in course.marks if belongs(mark))
    stood = [mark.step for mark in course.marks if not belongs(mark)]
    if attempt.before is not None:
        stood.append(attempt.before)
    if old.before is not None and (same or not stood):
        stood.append(old.before)
    readings = {
        source: replace(one, attempt=number) if one.attempt == old.number and belongs(one) else one
        for source, one in course.readings.items()
    }
    attempt = replace(
        attempt,
        number=number,
        started=attempt.started or same,
        told=old.told if same and attempt.told is None else attempt.told,
        before=max(stood, default=None),
        first=kept[0].step if kept else None,
    )
    return replace(
        course,
        readings=readings,
        attempt=attempt,
        marks=kept,
        heard=course.heard if course.heard is not None and belongs(course.heard) else None,
        paused=course.paused if kept else 0.0,
        resumes_before=course.resumes_before if same else course.resumes,
        repeated_before=course.repeated_before if same else course.repeated,
    )


def _counted(course: Course, seen: StepSeen) -> Course:
    """With a step said of the present attempt, whether it is a higher one or not."""
    if seen.timestamp < course.attempt.began:
        return course
    if seen.total is not None and seen.total > 0:
        course = replace(course, total=seen.total)
    last = course.marks[-1] if course.marks else None
    if last is None:
        # No step is made by saying which were: a bar of progress is drawn before the first.
        told = course.attempt.told or 0
        idle = seen.step == told or (seen.step < told and not seen.tells)
        return course if idle else _advanced(course, seen, None)
    return _advanced(course, seen, last) if seen.step > last.step else _again(course, seen, last)


def _again(course: Course, seen: StepSeen, last: Mark) -> Course:
    """With a step that was said before, or a lower one."""
    if seen.step < last.step or not seen.dated:
        return course
    if not last.dated:
        mark = Mark(seen.step, seen.timestamp, paused=last.paused)
        course = replace(course, marks=(*course.marks[:-1], mark))
    if seen.tells and not course.finished:
        # The line of a step may come last of all: after its save and its evaluation.
        course = _entered(course, Phase.TRAINING, seen.timestamp)
    return course


def _advanced(course: Course, seen: StepSeen, last: Mark | None) -> Course:
    """With a higher step."""
    timestamp = seen.timestamp if last is None else max(seen.timestamp, last.timestamp)
    mark = Mark(seen.step, timestamp, seen.dated, course.paused)
    if last is not None and last.dated and seen.dated and timestamp - last.timestamp < BURST:
        mark = mark._replace(timestamp=last.timestamp, paused=last.paused)
        previous = course.marks[-2] if len(course.marks) > 1 else None
        pace = course.pace.after_burst(previous, mark, seen.seconds)
        marks = (*course.marks[:-1], mark)
    else:
        pace = course.pace.after_step(last, mark, seen.seconds)
        marks = (*course.marks, mark)[-RECENT:]
    attempt = course.attempt
    if attempt.first is None:
        attempt = replace(attempt, first=seen.step)
    course = replace(course, attempt=attempt, marks=marks, pace=pace)
    course = _signed(course, Sign(timestamp, seen.dated, course.paused))
    if course.total is not None and seen.step >= course.total:
        return _entered(course, Phase.FINISHED, timestamp)
    if seen.tells or course.phase in (None, Phase.STARTING):
        return _entered(course, Phase.TRAINING, timestamp)
    return course


def _moved(course: Course, seen: Advanced) -> Course:
    """With a step, though it was not said which."""
    if seen.seconds is not None:
        pace = course.pace.after_step(None, Mark(0, seen.timestamp, seen.dated), seen.seconds)
        course = replace(course, pace=pace)
    course = _signed(course, Sign(seen.timestamp, seen.dated, course.paused))
    return course if course.finished else _entered(course, Phase.TRAINING, seen.timestamp)


def _signed(course: Course, sign: Sign) -> Course:
    """With a sign that the run goes forward."""
    course = _broken(course, sign.timestamp)
    heard = course.heard
    if heard is None or not heard.dated or not sign.dated:
        return replace(course, heard=sign)
    if sign.timestamp - heard.timestamp < ONE_SIGN:
        return course
    return replace(course, heard=sign, pace=course.pace.after_sign(heard, sign))


def _turned(course: Course, phase: Phase, timestamp: float) -> Course:
    """In another phase, as the run says; so what it did until then has its end."""
    paused = course.paused
    if phase is not course.phase and course.phase in _ASIDE and course.since is not None:
        paused += max(0.0, timestamp - course.since)
    return _entered(replace(course, paused=paused), phase, timestamp)


def _entered(course: Course, phase: Phase, timestamp: float) -> Course:
    if phase is course.phase:
        return course
    return replace(_broken(course, timestamp, stepless=True), phase=phase, since=timestamp)


def _broken(course: Course, timestamp: float, *, stepless: bool = False) -> Course:
    """With a sign, of whatever kind, that breaks the silence since the last one.

    How long the run may be in a phase other than training is known beforehand, and not learned.
    """
    last, pace = course.sign, course.pace
    alone = max(course.attempt.began, course.interrupted)
    if course.phase is Phase.TRAINING and last is not None and last >= alone:
        pace = pace.after_silence(max(0.0, timestamp - last), stepless=stepless)
    return replace(course, pace=pace, sign=max(timestamp, last or 0.0))
