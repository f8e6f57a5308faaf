"""Parquet files, written by compiled loops.

Most of the time of a replay went into writing silver, almost all of it in a general-purpose writer: that looks at each
value several times, packs bits one number at a time, and computes the levels of a list again for each field of its
elements. This ledger writes few types, mostly numbers that grow in small steps and strings that are dictionary-encoded
already. So it has a writer of its own. Any reader of Parquet 2 can read the files; tests check that with pyarrow,
Spark, DuckDB and delta-rs.

`kernels` has the loops (the encodings), `pages` makes the pages of a column, `schema` describes the columns of a file,
`thrift` encodes headers and footer, `file` puts a file together. Reading is pyarrow's.
"""
