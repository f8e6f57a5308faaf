"""Questions that Ctrl-C ends, whoever computes the answer."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def interruptible(function: Callable[[], Result], interrupt: Callable[[], None] | None = None) -> Result:
    """What a function gives, or raises, that asks another program or library; `interrupt` ends what it asked.

    Ctrl-C reaches the main thread, so that one only waits. DuckDB looks for it between two pieces of work alone, and a
    join may be one piece. PySpark cancels all jobs by itself, through the connection that the asking thread uses: were
    that the main thread, in the middle of a question, it would fail, and the job go on.
    """
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(function)
        try:
            return answer.result()
        except KeyboardInterrupt:
            if interrupt is not None:
                interrupt()
            raise
