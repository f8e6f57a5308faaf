"""A night of Groupledger as an Airflow DAG: capture, replay, audit and, once a week, maintenance.

It needs apache-airflow-providers-apache-spark and a connection `spark_default` to your cluster. Each job is its own
Spark application, so Airflow can retry a failed task by itself: every job may be repeated.

GROUPLEDGER is the project's folder, set up once with `./spark-submit.sh --set-up`, on a disk that driver and executors
mount at the same path.
"""

from datetime import datetime, timedelta
from pathlib import Path

from airflow import DAG
from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

GROUPLEDGER = "/opt/groupledger"
WAREHOUSE = "s3a://ledger/warehouse"
CLUSTER_ID = "orders-eu"
SOURCE = ["--bootstrap-server", "kafka-1:9092,kafka-2:9092", "--command-config", "/etc/groupledger/client.properties"]


def spark_defaults() -> dict[str, str]:
    """The Spark settings that the jobs need, from the project's own file."""
    lines = (Path(GROUPLEDGER) / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    # the connection sets the master
    return {name: value.strip() for name, value in pairs if name != "spark.master"}


class Job(SparkSubmitOperator):
    """A job of Groupledger. Exit code 3 (done, but something is missing or was quarantined: see docs/operations.md) is
    in the task's log and the metrics, but is not a failure: another try would not help, and the next tasks still have
    work to do."""

    def execute(self, context):
        try:
            super().execute(context)
        except AirflowException as error:
            if "Error code is: 3." not in str(error):
                raise
            self.log.warning("done, but something is missing or was quarantined: see bronze.coverage")


def job(name: str, *words: str, pool: str = "groupledger") -> Job:
    """One job. The pool has one slot, because a second run of a cluster at the same time would be refused."""
    python = f"{GROUPLEDGER}/.venv/bin/python"
    return Job(
        task_id=name,
        name=f"groupledger {name}",
        conn_id="spark_default",
        application=f"{GROUPLEDGER}/jobs/__main__.py",
        application_args=[name, "--warehouse", WAREHOUSE, *words],
        conf=spark_defaults() | {"spark.executorEnv.PYTHONPATH": GROUPLEDGER},
        env_vars={
            "PYTHONPATH": GROUPLEDGER,
            "PYTHONHASHSEED": "0",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        },
        pool=pool,
    )


with DAG(
    dag_id="groupledger_nightly",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    tags=["kafka"],
):
    of_cluster = ["--cluster-id", CLUSTER_ID]
    job("capture", *of_cluster, *SOURCE) >> job("replay", *of_cluster) >> job("audit", *of_cluster)

with DAG(
    dag_id="groupledger_maintain",
    schedule="0 5 * * 0",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["kafka"],
):
    job("maintain")
