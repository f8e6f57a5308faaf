"""Dumps: records of a log that other tools wrote, as a source."""
