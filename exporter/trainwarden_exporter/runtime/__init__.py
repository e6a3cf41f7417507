"""Threads, state files, logging and formats used by all parts."""
