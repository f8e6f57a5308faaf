"""The JDK's own answers (java/JavaSays.java), for tests that compare."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

PROGRAM = Path(__file__).resolve().parent / "java" / "JavaSays.java"


class JavaSays:
    """A JVM that answers. Leave the `with` block to end it; it also ends when this process does."""

    def __enter__(self) -> Self:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
        assert java is not None, "Java is a prerequisite of the project"
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
        self._process = subprocess.Popen(
            [java, *flags, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def properties(self, content: bytes) -> Mapping[str, str] | None:
        """What java.util.Properties reads; None where it refuses."""
        answer = self._ask("properties", content.hex())
        if answer == "error":
            return None
        pairs = (pair.split("=") for pair in answer.split())
        return {_text(key): _text(value) for key, value in pairs}

    def tokens(self, text: str) -> list[str]:
        """The tokens of JAAS: a text, `number`, or a single sign after a blank."""
        names = []
        for token in self._ask("tokens", _hex(text)).split():
            kind, _, value = token.partition(":")
            names.append("number" if kind == "n" else _text(value) if kind == "w" else f" {chr(int(value))}")
        return names

    def store(self, path: Path, kind: str, password: str, entries: Sequence[str], key_password: str = "") -> Path:
        """Write a JKS or PKCS12 store; entries as in JavaSays.java."""
        words = ("store", kind, _hex(str(path)), _hex(password), _hex(key_password or password), *entries)
        assert self._ask(*words) == "ok"
        return path

    def _ask(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JVM has ended"
        return line.strip("\n")


def _hex(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def _text(units: str) -> str:
    return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")
