"""Memory of the host and of its cgroup."""
