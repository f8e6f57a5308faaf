"""The replay: from bronze to silver."""
