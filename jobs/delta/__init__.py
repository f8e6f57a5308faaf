"""Delta tables through delta-rs and Arrow: commits, versions of whole runs, data files."""
