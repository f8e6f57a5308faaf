"""The state of groups at a time, and what is missing for it."""
