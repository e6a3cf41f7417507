"""`trainwarden run`: the parent of a run's command.

Two processes stay with a run. The *launcher* is the parent of the command and the leader of its
session; it does nothing but start it and wait for it. The *wrapper* passes terminal and output
through, writes the log, announces the run and answers at its socket; if it is killed, the launcher
starts another without a terminal. Both use the standard library alone, and little of it: they stay
as long as the run.
"""
