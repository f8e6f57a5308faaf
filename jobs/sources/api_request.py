"""Requests that kafka-python lacks, in the form that its connections send and receive.

A connection asks a request for its version range, sets its header, takes its bytes, and later asks the header for a
reader of the response. Messages are declared in `schemas.admin_protocol`; the project's codec encodes and decodes them.
"""

from typing import Any, Final

from coordinator_core.bytes.codec import Struct, decode, encode, make, read_uvarint
from coordinator_core.errors import CoreError, LengthOutOfBounds
from schemas.wire import Message, message_versions, version_range

FRAME_LENGTH_BYTES: Final = 4
CORRELATION_ID_BYTES: Final = 4


class ApiRequest:
    """One request. Message fields are keyword arguments; others have Kafka's default.

    `min_version`: the first usable version, where that is not the first one declared. The response is a struct with the
    declared fields as attributes.
    """

    min_version: int
    max_version: int
    _min_version: int | None = None
    _max_version: int | None = None

    def __init__(self, api: tuple[Message, Message], min_version: int = 0, **fields: Any) -> None:
        self._request, self._response = api
        self._fields = make(self._request, **fields)
        versions = message_versions(self._request)
        self.min_version, self.max_version = max(versions[0], min_version), versions[-1]
        self.API_KEY = self._request.api_key
        self.API_VERSION: int | None = None
        self.name = self._request.name
        self.header: _Header | None = None

    def __repr__(self) -> str:
        return f"{self.name}(version={self.API_VERSION})"

    def expect_response(self) -> bool:
        """Every request has a response."""
        return True

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        """Set the header with which the request is sent."""
        assert self.API_KEY is not None and self.API_VERSION is not None, "a version was agreed upon"
        self.header = _Header(self._response, self.API_KEY, self.API_VERSION, correlation_id, client_id)

    def encode(self, *, framed: bool = False, header: bool = False) -> bytes:
        """The bytes of the request: with length prefix if `framed`, with header if `header`."""
        assert self.API_VERSION is not None, "a version was agreed upon"
        data = encode(self._request, self._fields, self.API_VERSION)
        if header:
            assert self.header is not None, "it has a header"
            data = self.header.encode(_is_flexible(self._request, self.API_VERSION)) + data
        return len(data).to_bytes(FRAME_LENGTH_BYTES, "big") + data if framed else data


class _Header:
    """A request's header, which knows how to read the response."""

    def __init__(self, response: Message, api_key: int, api_version: int, correlation_id: int, client_id: str) -> None:
        self.api_key = self.request_api_key = api_key
        self.api_version = self.request_api_version = api_version
        self.correlation_id = correlation_id
        self._client_id = client_id
        self._response = response

    def encode(self, is_flexible: bool) -> bytes:
        """RequestHeader version 1, or 2 with an empty tag section: the client id is never a compact string."""
        client_id = self._client_id.encode()
        numbers = ((self.api_key, 2), (self.api_version, 2), (self.correlation_id, 4), (len(client_id), 2))
        return b"".join(number.to_bytes(size, "big") for number, size in numbers) + client_id + bytes(is_flexible)

    def get_response_class(self) -> "_ResponseReader":
        return _ResponseReader(self._response, self.api_version)


class _ResponseReader:
    """Reads a response from a stream that contains nothing else."""

    def __init__(self, message: Message, version: int) -> None:
        self._message = message
        self._version = version
        self.correlation_id = -1

    def parse_header(self, stream: Any) -> "_ResponseReader":
        """Read the response header; returns an object with the `correlation_id`."""
        self.correlation_id = int.from_bytes(stream.read(CORRELATION_ID_BYTES), "big")
        return self

    def decode(self, stream: Any) -> Struct:
        """Read the response body.

        Raises ValueError for bytes that are not such a response, which closes the connection.
        """
        # kafka-python's stream is a bytearray, and its read() copies the data twice
        data = memoryview(stream)[stream.tell() :]
        try:
            position = _skip_tags(data) if _is_flexible(self._message, self._version) else 0
            return decode(self._message, data, self._version, position=position)
        except (CoreError, IndexError) as error:
            raise ValueError(f"{self._message.name} cannot be decoded") from error


def _skip_tags(data: memoryview) -> int:
    """The position after the tag section at the end of a flexible header."""
    count, position = read_uvarint(data, 0)
    if not 0 <= count <= len(data):
        raise LengthOutOfBounds("more tags than bytes")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if not 0 <= size <= len(data) - position:
            raise LengthOutOfBounds("a tag ends behind the bytes")
        position += size
    return position


def _is_flexible(message: Message, version: int) -> bool:
    return version in version_range(message.flexible, message_versions(message)[-1])
