"""Groups client ids by family: instances of one service differ only in the words that a machine generated."""

import re
from functools import lru_cache
from typing import Final

RANDOM_LETTERS_MIN: Final = 5
"""A word of at least this many letters without a vowel counts as generated: Kubernetes names pods like that."""
VOWELS: Final = frozenset("aeiouyAEIOUY")
_WORDS: Final = re.compile(r"[^\W_]+")
_KNOWN_MAX: Final = 1 << 14
"""How many client ids the cache of families holds."""


@lru_cache(_KNOWN_MAX)
def client_family(client_id: str) -> tuple[str, ...]:
    """The words of a client id that instances of one service share: all but the generated ones."""
    return tuple(word for word in _WORDS.findall(client_id) if not _is_made_up(word))


def _is_made_up(word: str) -> bool:
    if any(letter.isdigit() for letter in word):
        return True
    return len(word) >= RANDOM_LETTERS_MIN and VOWELS.isdisjoint(word)
