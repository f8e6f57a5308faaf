"""The replay: bronze to silver."""
