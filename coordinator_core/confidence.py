"""How sure an inference is: the values of `confidence` in gold and in answers of whatif, the surest first."""

from typing import Final

CERTAIN: Final = "CERTAIN"
"""The log proves it."""
LIKELY: Final = "LIKELY"
GUESS: Final = "GUESS"
CONFIDENCES: Final = (CERTAIN, LIKELY, GUESS)
