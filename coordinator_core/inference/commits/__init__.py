"""Commits: anomalies, deletions, lag, hanging transactions."""
