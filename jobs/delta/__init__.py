"""Delta tables through delta-rs and Arrow: the one door for writes, versions of whole runs, files."""
