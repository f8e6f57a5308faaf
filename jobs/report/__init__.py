"""report: gold and silver of a cluster as one HTML file, which opens without a network and asks for nothing.

`cluster`, `groups` and `shares` read tables into pictures (`pictures`); `page` puts them into the file. Each picture
has the table it was drawn from and the SQL that gives this table.
"""
