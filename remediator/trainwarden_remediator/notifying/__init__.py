"""Calls a person: what the journal holds that is worth it, to whom, in which words.

The journal is both what is told of and what remembers that it was told, so that nobody is called
twice for one thing, nor forgotten, whenever the program is started anew.
"""
