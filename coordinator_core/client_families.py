"""Clients of one kind, by their client ids: instances of one service differ in what a machine made up."""

import re
from functools import lru_cache
from typing import Final

RANDOM_LETTERS_MIN: Final = 5
"""A word of so many letters, none a vowel, is none: Kubernetes names pods so."""
VOWELS: Final = frozenset("aeiouyAEIOUY")
_WORDS: Final = re.compile(r"[^\W_]+")
_KNOWN_MAX: Final = 1 << 14
"""Client ids whose family is remembered."""


@lru_cache(_KNOWN_MAX)
def client_family(client_id: str) -> tuple[str, ...]:
    """The words of a client id that instances of one service have in common: those that no machine made up."""
    return tuple(word for word in _WORDS.findall(client_id) if not _is_made_up(word))


def _is_made_up(word: str) -> bool:
    if any(letter.isdigit() for letter in word):
        return True
    return len(word) >= RANDOM_LETTERS_MIN and VOWELS.isdisjoint(word)
