"""The audit: silver to gold."""
