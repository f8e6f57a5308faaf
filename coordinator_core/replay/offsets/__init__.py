"""Committed offsets: state and replay."""
