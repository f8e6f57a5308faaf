"""The audit: from silver to gold."""
