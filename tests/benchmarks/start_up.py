"""What every PySpark job pays before it begins: a session with the jobs' settings, a task in Python, and the end."""

from jobs.session import spark_defaults, start_session

if __name__ == "__main__":
    session = start_session("start-up", spark_defaults())
    session.sparkContext.parallelize([1, 2], 2).map(abs).collect()
    session.stop()
