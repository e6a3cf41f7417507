"""The command `trainwarden`, and what a training script imports.

This module imports nothing: a training script pays for it at its start.
"""
