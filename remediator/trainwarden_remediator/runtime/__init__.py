"""Clocks, memory reserve and OOM score of the program."""
