"""Explains after the fact, from the files of a run, why it ended."""
