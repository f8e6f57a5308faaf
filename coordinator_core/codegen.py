"""A function written as Python source, line by line, and compiled: for what runs too often to be put together of calls.

As dataclasses and attrs make their methods. No text of a log ever gets into the source: a declaration decides it alone.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the objects that they name."""

    def __init__(self, signature: str) -> None:
        """`signature`: `name(argument, ...)`."""
        self._signature = signature
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, Any] = {}

    def add(self, *lines: str, depth: int = 0) -> None:
        """Append lines, indented by `depth`."""
        self._lines += ["    " * (self._depth + depth) + line for line in lines]

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Lines that are added here are one level deeper than the line before."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def name(self, kind: str, value: Any) -> str:
        """A name of this function alone for an object: what it is, and a number."""
        name = f"{kind}_{len(self._names)}"
        self._names[name] = value
        return name

    def compiled(self, title: str) -> Callable[..., Any]:
        """The function. Its lines show in a traceback, under `title`."""
        text = "\n".join([f"def {self._signature}:", *self._lines, ""])
        file = f"<{title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names = dict(self._names)
        exec(compile(text, file, "exec"), names)
        made: Callable[..., Any] = names[self._signature.partition("(")[0]]
        return made
