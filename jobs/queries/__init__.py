"""Queries over the tables, and their output."""
