"""Committed offsets: state, pure replay, and the compiled lane for whole logs."""
