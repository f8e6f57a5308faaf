"""Spark as the jobs use it: session, tasks, worker processes."""
