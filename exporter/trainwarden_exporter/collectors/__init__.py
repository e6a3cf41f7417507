"""One file per collector. A collector observes; it never judges and never changes anything."""
