"""Groupledger, the ledger of every Kafka group: the package that a wheel installs."""

from jobs import __version__

__all__ = ["__version__"]
