"""The jobs, and the only use of Spark: read, select, pass to the core, select, write."""

__version__ = "0.1.0"

PACKAGE = __name__
"""Name of this package: `groupledger.jobs` in a wheel."""
