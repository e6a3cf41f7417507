"""The disks that a run writes to: what is left of them, and how well they write."""
