"""Patterns of topic subscriptions."""

import re


class InvalidPattern(Exception):
    def __init__(self, description: str) -> None:
        self.description = description
        super().__init__(description)


class Pattern:
    def __init__(self, regex: str) -> None:
        try:
            self.re = re.compile(regex)
        except re.error:
            raise InvalidPattern("missing closing ]" if "[" in regex else "missing closing )") from None

    def matches(self, text: str) -> bool:
        return self.re.fullmatch(text) is not None


compile_pattern = Pattern
