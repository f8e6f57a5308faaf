"""A stub of a Spark session of two cores for jobs that only hand it tasks: these run here, one after the other."""

from pyspark.sql import SparkSession

from jobs.spark.in_driver import in_driver


def in_process() -> SparkSession:
    """For jobs whose tasks are plain functions."""
    return in_driver(2)
