"""Share groups: state and replay."""
