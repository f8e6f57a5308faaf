"""What every job pays before it begins: a Spark session with the jobs' own settings, and its end."""

from jobs.session import spark_defaults, start_session

if __name__ == "__main__":
    start_session("start-up", spark_defaults()).stop()
