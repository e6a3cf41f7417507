"""Web server of both programs: sockets, TLS, users, signals, reloads, pages."""
