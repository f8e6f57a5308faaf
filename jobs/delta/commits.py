"""How a commit writes rows, and its result: apart from the module that commits, which needs delta-rs."""

from dataclasses import dataclass
from typing import Final

APPEND: Final = "append"
OVERWRITE: Final = "overwrite"


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit. `skipped`: the application's version already existed, and nothing was written."""

    version: int
    row_count: int
    skipped: bool
