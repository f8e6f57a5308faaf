"""report: gold and silver of a cluster as one HTML file that needs no network.

`cluster`, `groups` and `shares` turn tables into pictures (`pictures`); `page` puts them into the file. Each picture
comes with the table it was drawn from and the SQL for that table.
"""
