"""Pure decisions: what is done about an incident, and why."""
