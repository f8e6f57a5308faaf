"""Start the parent process of Python workers while the JVM starts, before Spark asks for it.

Spark's JVM starts `jobs.spark.worker_daemon` as a child once it is up, and only then would that import, for seconds,
what tasks need. Where workers run on the driver's machine, the driver starts that process ahead. The JVM's child finds
it through the environment, passes on what Spark gave it (arguments, environment, standard streams), and lives as long
as it.

This is only an optimization: where it is not possible, or Spark starts workers with another environment than expected,
the JVM's child does the imports itself.
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
"""In a job's environment, set by bootstrap.py: its workers run on its driver's machine. In the JVM's environment:
the path of a socket."""
DAEMON: Final = f"{__package__}.worker_daemon"
"""The module that forks Python workers."""
WAIT: Final = "--wait"
"""Its first argument when it is started ahead; the other arguments describe its socket: descriptor and folder."""
EXECUTOR_ENVIRONMENT: Final = "spark.executorEnv."
OF_EVERY_WORKER: Final = {"PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}
"""Variables that Spark adds to the environment of Python workers, and that Python or its libraries read when they
start."""
SPARK_VARIABLES: Final = ("SPARK_", "_PYSPARK_", "PYTHON_")
SHELL_VARIABLES: Final = frozenset({AHEAD, "_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that nothing reads before workers are forked."""
OFFER: Final = b"?"
TAKEN: Final = b"!"


def start_ahead(spark_settings: Mapping[str, str]) -> None:
    """Start the parent process of workers, if bootstrap.py says that they run on this machine.

    It ends with this process unless Spark has taken it over. `spark_settings`: from conf/spark-defaults.conf.
    """
    if not os.environ.get(AHEAD):
        return
    of_executors = {
        name.removeprefix(EXECUTOR_ENVIRONMENT): value
        for name, value in spark_settings.items()
        if name.startswith(EXECUTOR_ENVIRONMENT)
    }
    folder = tempfile.mkdtemp(dir=use_run_folder())
    path = str(Path(folder) / "workers")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            # its stdin stays empty, and is closed when this process ends
            process = subprocess.Popen(
                [sys.executable, "-m", DAEMON, WAIT, str(listener.fileno()), folder],
                env={**os.environ, **OF_EVERY_WORKER, **of_executors},
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
    """At exit, close the stdin of the process that was started ahead, which stays open until then."""
    if process.stdin is not None:
        process.stdin.close()


def hand_over(arguments: list[str]) -> bool:
    """Pass on what Spark gave this process to the one that was started ahead, if there is one, and wait for its end.

    False: there is none, it does not fit, or it ended before the hand-over.
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
    """Wait for what Spark gives to its own child, and take its place: from then on this process is Spark's daemon.

    False: the driver has ended, or Spark starts Python workers with another environment than this process has.
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
    connection.detach()  # stays open until this process and its forked workers end
    return True


def _is_expected(environment: Mapping[str, str]) -> bool:
    """Would a process with this environment have imported the same as this one?"""
    names = {name for name in {*environment, *os.environ} if environment.get(name) != os.environ.get(name)}
    return all(
        name in SHELL_VARIABLES
        or name.startswith(SPARK_VARIABLES)
        or (name == "PYTHONPATH" and _without_spark(environment) == _without_spark(os.environ))
        for name in names
    )


def _without_spark(environment: Mapping[str, str]) -> list[str]:
    """The entries of PYTHONPATH without Spark's own, where PySpark was found by the driver. The JVM uses the real
    path of its jars, whatever link was used (of an environment, or `/opt/spark`)."""
    spark = Path(environment.get("SPARK_HOME", os.sep)).resolve()
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [place for place in places if not Path(place).resolve().is_relative_to(spark)]
