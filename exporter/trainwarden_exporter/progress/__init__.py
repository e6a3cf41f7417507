"""Progress of a run: steps, phase, and stall limits."""
