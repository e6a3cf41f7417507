"""What both programs serve with: sockets, TLS, users, signals, reloads, pages."""
