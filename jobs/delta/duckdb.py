"""DuckDB, which computes over rows that it is given."""

from typing import Any


def duckdb_module() -> Any:
    """DuckDB's Python, imported at its first use."""
    import duckdb  # noqa: PLC0415  (a tenth of a second that other jobs need not wait for)

    return duckdb


def connect() -> Any:
    """A DuckDB that reads only what it is given, neither files nor the network; queries that exceed memory fail."""
    connection = duckdb_module().connect(
        config={
            "enable_external_access": False,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "temp_directory": "",
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection.execute("SET lock_configuration = true")
