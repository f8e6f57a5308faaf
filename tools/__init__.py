"""Generators of parts of the project, and comparisons."""
