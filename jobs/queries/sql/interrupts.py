"""Make long-running queries of libraries interruptible with Ctrl-C."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def interruptible(function: Callable[[], Result], interrupt: Callable[[], None] | None = None) -> Result:
    """Run a function in a thread, while the main thread waits for Ctrl-C; `interrupt` cancels the query.

    Ctrl-C reaches only the main thread. DuckDB checks for it only between pieces of work, and a join may be one piece.
    PySpark cancels all jobs through the connection of the calling thread: if that were the main thread, in the middle
    of a call, the cancellation would fail and the job would continue.
    """
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(function)
        try:
            return answer.result()
        except KeyboardInterrupt:
            if interrupt is not None:
                interrupt()
            raise
