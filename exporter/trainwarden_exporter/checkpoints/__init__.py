"""Checkpoints of a run: newest complete one, and whether the run can resume from it."""
