"""The only Spark: read, select, hand to the core, select, write."""

__version__ = "0.1.0"

PACKAGE = __name__
"""Its name: `groupledger.jobs` in a wheel."""
