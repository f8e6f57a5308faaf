"""Classic groups: state and replay."""
