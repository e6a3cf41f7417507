"""The subcommands of `trainwarden-remediator`, one module each."""
