"""Parquet files, written by compiled loops.

Most of a replay's time went into writing silver, and nearly all of that into a general writer: it looks at each value
several times, packs bits one number at a time, and computes the levels of a list again for each field of its elements.
This ledger writes few types, mostly numbers that grow by small steps and texts that are coded already. So its files are
written here. Any reader of Parquet 2 reads them; tests check that with pyarrow, Spark, DuckDB and delta-rs.

`kernels` has the loops (the encodings), `pages` makes a page of a column, `schema` says what columns a file has,
`thrift` has the bytes of headers and footer, `file` puts a file together. Reading is pyarrow's.
"""
