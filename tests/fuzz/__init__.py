"""Seeded fuzzing of the log layer: mutants of real batches and segments; only findings and DecodeError may come out."""
