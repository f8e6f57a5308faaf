"""Streams groups: state and replay."""
