"""Planted faults: does anything notice? `make mutants` plants them all, `make test` a few."""
