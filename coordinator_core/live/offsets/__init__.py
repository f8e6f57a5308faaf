"""Committed offsets: state, pure replay, and the compiled columnar replay for whole logs."""
