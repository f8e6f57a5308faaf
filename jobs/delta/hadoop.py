"""HDFS through the client of delta-rs."""

from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler


class HadoopHandler(DeltaStorageHandler):  # type: ignore[misc]
    """HADOOP_CONF_DIR defines the name nodes and nameservices."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        """Open a new file. pyarrow passes buffers, but delta-rs accepts only bytes."""
        return pa.PythonFile(_TakesBuffers(self._handler.open_output_stream(path, metadata)), mode="w")


class _TakesBuffers:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: pa.Buffer | bytes) -> int:
        return int(self._stream.write(bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
