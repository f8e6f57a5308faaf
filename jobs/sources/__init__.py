"""Where logs are read: segment files, and the Spark data source over them."""
