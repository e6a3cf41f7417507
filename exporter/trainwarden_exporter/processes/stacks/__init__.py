"""Stacks of the processes of a run without progress: what they wait for, and for which one."""
