"""Holds: the file in which an operator stops all actions."""
