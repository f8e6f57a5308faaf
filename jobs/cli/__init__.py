"""The command line: one command a job."""
