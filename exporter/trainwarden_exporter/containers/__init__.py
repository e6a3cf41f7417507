"""The containers of a run: how often they start, and how they ended."""
