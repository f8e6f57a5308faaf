"""The compiled replay of offset commits and of share state, a whole log at a time."""
