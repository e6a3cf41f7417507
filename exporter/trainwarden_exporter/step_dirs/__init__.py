"""Folders with one entry per step: the common base of checkpoints and rollouts."""
