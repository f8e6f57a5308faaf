"""Parquet files, written by compiled loops.

To write silver was most of the work of a replay, and nearly all of that a general writer's: it looks at each value
several times, packs bits one number at a time, and makes the levels of a list anew for each field of its elements. What
this ledger writes is of few types, mostly numbers that grow by small steps and texts that are coded already. So its
files are written here. Any reader of Parquet 2 reads them; the tests hold pyarrow, Spark, DuckDB and delta-rs to it.

`kernels` has the loops (the encodings), `pages` makes a page of a column, `schema` says what columns a file has,
`thrift` has the bytes of headers and footer, `file` puts a file together. Reading is pyarrow's.
"""
