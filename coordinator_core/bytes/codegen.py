"""Builds a function as Python source, line by line, and compiles it: for code that runs too often to be composed of
calls.

dataclasses and attrs make their methods the same way. Only declarations decide the source; no text of a log gets into
it.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the objects that these lines refer to."""

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
        """Indent the lines added inside this block by one level."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def name(self, kind: str, value: Any) -> str:
        """Bind an object to a new name, unique in this function. Returns the name: `kind` and a number."""
        name = f"{kind}_{len(self._names)}"
        self._names[name] = value
        return name

    def compiled(self, title: str) -> Callable[..., Any]:
        """Compile the function. A traceback shows its lines under `title`."""
        text = "\n".join([f"def {self._signature}:", *self._lines, ""])
        file = f"<{title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names = dict(self._names)
        exec(compile(text, file, "exec"), names)
        made: Callable[..., Any] = names[self._signature.partition("(")[0]]
        return made
