"""The control loop and the executor of its decisions."""
