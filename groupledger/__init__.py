"""Groupledger, the ledger of every Kafka group: the package that a wheel installs, and its API for Spark jobs.

The API takes DataFrames and returns DataFrames, in classic sessions and over Spark Connect, and starts nothing by
itself. Names are loaded on first use, since the command line imports this package, too.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jobs import __version__

if TYPE_CHECKING:
    from coordinator_core.inference.facts.settings import InferenceSettings
    from groupledger.audit import GroupAudit, ShareAudit, audit_groups, audit_share_partitions
    from groupledger.decoding import decode
    from groupledger.ledger import Ledger
    from groupledger.records import RecordsError
    from groupledger.replay import GroupReplay, ShareReplay, replay_groups, replay_share_partitions
    from groupledger.sql import register
    from groupledger.tables import read, write_options

__all__ = [
    "GroupAudit",
    "GroupReplay",
    "InferenceSettings",
    "Ledger",
    "RecordsError",
    "ShareAudit",
    "ShareReplay",
    "__version__",
    "audit_groups",
    "audit_share_partitions",
    "decode",
    "read",
    "register",
    "replay_groups",
    "replay_share_partitions",
    "write_options",
]

_MODULES: Final = {
    "GroupAudit": "audit",
    "GroupReplay": "replay",
    "InferenceSettings": "audit",
    "Ledger": "ledger",
    "RecordsError": "records",
    "ShareAudit": "audit",
    "ShareReplay": "replay",
    "audit_groups": "audit",
    "audit_share_partitions": "audit",
    "decode": "decoding",
    "read": "tables",
    "register": "sql",
    "replay_groups": "replay",
    "replay_share_partitions": "replay",
    "write_options": "tables",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    wheel = next((part.name for part in Path(__file__).parents if part.suffix == ".whl"), None)
    if wheel is not None:
        raise ImportError(
            f"{wheel} was given to Spark as it is, and Spark's workers import from .zip alone: "
            f"cp {wheel} groupledger.zip, and give --py-files groupledger.zip"
        )
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "pandas"):
            raise
        raise ImportError(
            f"{__name__}.{name} needs {package}, which a platform with Spark has: elsewhere, "
            "pip install 'groupledger[spark]'"
        ) from error
