"""The checkpoints of a run: which is the newest that is whole, and could the run resume from it."""
