"""Pseudonyms of hosts: what silver and gold show instead of a client's address, by `[privacy]` in the settings.

Replay applies them where it writes members, and nowhere else. Bronze and the saved state have the original bytes of the
log. If addresses must not be stored at all, set a retention for bronze, or remove single ones with `maintain --erase`.
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
"""Length of a pseudonym: 128 bits, so that no two hosts get the same."""


@dataclass(frozen=True, slots=True)
class HostPseudonyms:
    """How hosts are shown. Small and picklable: every task gets it, with the path of the key, never the key itself."""

    key_file: str

    def check(self) -> None:
        """Raises SettingsError where the key cannot be read or is too short."""
        _key(self.key_file)

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows with pseudonyms of their hosts; null and empty values stay."""
        index = rows.schema.get_field_index(CLIENT_HOST)
        if index < 0:
            return rows
        coded = rows[CLIENT_HOST].combine_chunks().dictionary_encode()
        names = pa.array([pseudonym(host, _key(self.key_file)) for host in coded.dictionary.to_pylist()], pa.string())
        return rows.set_column(index, rows.schema.field(index), pc.take(names, coded.indices))


def host_pseudonyms(settings: Settings) -> HostPseudonyms | None:
    """From the settings; None: hosts are shown as they are. Raises SettingsError for an unusable key."""
    if settings.privacy_hosts == KEEP:
        return None
    pseudonyms = HostPseudonyms(settings.privacy_key_file)
    pseudonyms.check()
    return pseudonyms


def pseudonym(host: str, key: bytes) -> str:
    """HMAC-SHA256 of a host, in hexadecimal: unique for each host and key."""
    return "host-" + hmac.new(key, host.encode(), "sha256").hexdigest()[:HEX_MAX] if host else host


@cache
def _key(key_file: str) -> bytes:
    """Each process reads the key itself, so that it is in no task argument, Spark setting or table."""
    try:
        key = Path(key_file).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"privacy.key_file {key_file} cannot be read: {error.strerror}") from None
    if len(key) < KEY_BYTES_MIN:
        raise SettingsError(f"privacy.key_file {key_file} must hold {KEY_BYTES_MIN} bytes or more of random text")
    return key
