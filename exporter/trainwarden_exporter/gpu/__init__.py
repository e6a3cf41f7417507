"""GPUs of the host: driver readings, holders and problems."""
