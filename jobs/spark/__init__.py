"""Spark for the jobs: session, tasks, worker processes."""
