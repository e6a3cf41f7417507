"""The command preflight: checks whether a run can start on this host."""
