"""The sql job: its two engines, its views."""
