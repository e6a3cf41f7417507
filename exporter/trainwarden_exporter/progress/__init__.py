"""How far a run has come, what it is doing, and how long it may do so without a sign."""
