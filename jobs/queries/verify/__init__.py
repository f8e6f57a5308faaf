"""The verify job: the tables against a broker's own answers."""
