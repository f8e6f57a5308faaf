"""The process from which Python workers are forked, started before Spark asks for it: while the JVM comes up.

Spark's JVM starts `jobs.spark.worker_daemon` as a child of its own once it is up, and that would only then load, for
seconds, what tasks need. Where workers run on the driver's machine, the driver starts that process ahead. The JVM's
child finds it by the environment, hands over what Spark gave it (arguments, environment, standard streams), and lives
as long as it.

It is only a head start: where it cannot be had, or Spark starts its workers otherwise than the driver expected, the
JVM's child loads all by itself.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from select import POLLIN, poll
from typing import Final

from jobs.spark.run_folder import use_run_folder

AHEAD: Final = "GROUPLEDGER_WORKERS_AHEAD"
"""In a job's environment: its workers run on its driver's machine, so bootstrap.py. In the JVM's: the path of a
socket."""
DAEMON: Final = f"{__package__}.worker_daemon"
"""What forks the Python workers."""
WAIT: Final = "--wait"
"""Its first argument where it is started ahead; the others are of its socket: the descriptor, the folder."""
EXECUTOR_ENVIRONMENT: Final = "spark.executorEnv."
OF_EVERY_WORKER: Final = {"PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}
"""What Spark adds to the environment of Python workers, and Python or its libraries read as they start."""
SPARK_VARIABLES: Final = ("SPARK_", "_PYSPARK_", "PYTHON_")
SHELL_VARIABLES: Final = frozenset({AHEAD, "_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that nothing reads before workers are forked."""
OFFER: Final = b"?"
TAKEN: Final = b"!"


def start_ahead(spark_settings: Mapping[str, str]) -> None:
    """Start the process that loads what workers are forked with, where bootstrap.py says that they run here.

    It ends with this process unless Spark has taken it over. `spark_settings`: of conf/spark-defaults.conf.
    """
    if not os.environ.get(AHEAD):
        return
    folder = tempfile.mkdtemp(dir=use_run_folder())
    path = str(Path(folder) / "workers")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            # its stdin stays empty, and is closed when this process is no more
            process = subprocess.Popen(
                [sys.executable, "-m", DAEMON, WAIT, str(listener.fileno()), folder],
                env={**os.environ, **OF_EVERY_WORKER, **_executor_environment(spark_settings)},
                pass_fds=(listener.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                process_group=0,
            )
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        atexit.register(_let_go, process)
        os.environ[AHEAD] = path


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Until the end of this process holds its end of the other's stdin."""
    if process.stdin is not None:
        process.stdin.close()


def hand_over(arguments: list[str]) -> bool:
    """Give what Spark gave this process to the one that was started ahead, if any, and wait for its end.

    False: there is none, or it does not fit, or it ended before it had taken over.
    """
    taken = False
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ.get(AHEAD, ""))
        offer = {"arguments": arguments, "path": sys.path, "environment": dict(os.environ)}
        socket.send_fds(connection, [OFFER], [0, 1, 2])
        connection.sendall(json.dumps(offer).encode())
        connection.shutdown(socket.SHUT_WR)
        taken = connection.recv(1) == TAKEN
        connection.recv(1)
    return taken


def take_over(descriptor: int, folder: str) -> bool:
    """Wait for what Spark gives to its own child, and take its place: from here on this process is Spark's daemon.

    False: the driver is no more, or Spark starts Python workers in another environment than this process has.
    """
    with socket.socket(fileno=descriptor) as listener:
        ready = poll()
        ready.register(listener, POLLIN)
        ready.register(sys.stdin, POLLIN)
        is_alone = any(number == sys.stdin.fileno() for number, _ in ready.poll())
        shutil.rmtree(folder, ignore_errors=True)
        if is_alone:
            return False
        connection, _ = listener.accept()
    _, streams, _, _ = socket.recv_fds(connection, len(OFFER), 3)
    with connection.makefile("rb") as text:
        offer = json.load(text)
    if not _is_expected(offer["environment"]):
        return False
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(offer["environment"])
    sys.argv[1:], sys.path[:] = offer["arguments"], offer["path"]
    connection.sendall(TAKEN)
    connection.detach()  # open until this process ends, and the workers that it forked
    return True


def _is_expected(environment: Mapping[str, str]) -> bool:
    """Would a process with this environment have loaded what this one has?"""
    names = {name for name in {*environment, *os.environ} if environment.get(name) != os.environ.get(name)}
    return all(
        name in SHELL_VARIABLES
        or name.startswith(SPARK_VARIABLES)
        or (name == "PYTHONPATH" and _without_spark(environment) == _without_spark(os.environ))
        for name in names
    )


def _without_spark(environment: Mapping[str, str]) -> list[str]:
    """The places of modules, but for Spark's own: of them PySpark is found where the driver found it. The JVM names its
    jars by their true path, whatever link leads there (of an environment, or `/opt/spark`)."""
    spark = Path(environment.get("SPARK_HOME", os.sep)).resolve()
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [place for place in places if not Path(place).resolve().is_relative_to(spark)]


def _executor_environment(spark_settings: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(EXECUTOR_ENVIRONMENT): value
        for name, value in spark_settings.items()
        if name.startswith(EXECUTOR_ENVIRONMENT)
    }
