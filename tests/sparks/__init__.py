"""The API on every Spark that it runs on."""
