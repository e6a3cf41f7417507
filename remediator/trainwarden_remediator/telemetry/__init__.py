"""The remediator's own metrics and its status page."""
