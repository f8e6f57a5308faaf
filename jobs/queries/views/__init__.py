"""The answers as SQL: views and table functions, each with the meaning of its columns, for DuckDB and for Spark."""
