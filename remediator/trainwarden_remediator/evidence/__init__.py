"""Evidence: records the state of the host before each action."""
