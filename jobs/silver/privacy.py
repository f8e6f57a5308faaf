"""Pseudonyms of hosts: what silver and gold say instead of a client's address, by `[privacy]` in the settings.

Applied in one place, where replay writes members. Bronze and the saved state hold the bytes of the log as they are: who
must not keep addresses at all gives bronze a retention, or lets `maintain --erase` take single ones out.
"""

import hmac
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import SettingsError
from jobs.settings import KEEP, Settings

CLIENT_HOST: Final = "client_host"
KEY_BYTES_MIN: Final = 16
HEX_MAX: Final = 32
"""Characters of a pseudonym: 128 bits, so that no two hosts share one."""


@dataclass(frozen=True, slots=True)
class HostPseudonyms:
    """How hosts are shown. Small and picklable: it goes to every task, with the path of the key and never the key."""

    key_file: str

    def check(self) -> None:
        """Raises SettingsError where the key cannot be read, or is too short to protect anything."""
        _key(self.key_file)

    def of(self, rows: pa.Table) -> pa.Table:
        """The same rows with pseudonyms of their hosts; what is no host stays null or empty."""
        index = rows.schema.get_field_index(CLIENT_HOST)
        if index < 0:
            return rows
        coded = rows[CLIENT_HOST].combine_chunks().dictionary_encode()
        names = pa.array([pseudonym(host, _key(self.key_file)) for host in coded.dictionary.to_pylist()], pa.string())
        return rows.set_column(index, rows.schema.field(index), pc.take(names, coded.indices))


def host_pseudonyms(settings: Settings) -> HostPseudonyms | None:
    """As the settings want them; None: hosts are shown as they are. Raises SettingsError for a key that is none."""
    if settings.privacy_hosts == KEEP:
        return None
    pseudonyms = HostPseudonyms(settings.privacy_key_file)
    pseudonyms.check()
    return pseudonyms


def pseudonym(host: str, key: bytes) -> str:
    """HMAC-SHA256 of a host, in hexadecimal: one for each host and key."""
    return "host-" + hmac.new(key, host.encode(), "sha256").hexdigest()[:HEX_MAX] if host else host


@cache
def _key(key_file: str) -> bytes:
    """Read by each process itself: it is in no argument of a task, no setting of Spark, no table."""
    try:
        key = Path(key_file).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"privacy.key_file {key_file} cannot be read: {error.strerror}") from None
    if len(key) < KEY_BYTES_MIN:
        raise SettingsError(f"privacy.key_file {key_file} must hold {KEY_BYTES_MIN} bytes or more of random text")
    return key
