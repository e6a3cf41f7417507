"""What the remediator of this box says of itself, for the status page alone."""
