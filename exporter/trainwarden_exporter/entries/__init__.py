"""Folders that hold one entry a step: what checkpoints and rollouts have in common."""
