"""Sends notifications about events in the journal.

The journal also records which notifications were sent, so that each is sent exactly once, also
across restarts of the program.
"""
