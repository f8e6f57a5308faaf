"""The sql job: its two engines."""
