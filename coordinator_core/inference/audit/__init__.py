"""The audit of a group, of a share partition and of a log, and what it keeps for the next night."""
