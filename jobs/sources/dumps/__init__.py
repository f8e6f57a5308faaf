"""Dumps of records: what other tools wrote of a log, as a source."""
