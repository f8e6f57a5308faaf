"""Consumer groups: state and replay."""
