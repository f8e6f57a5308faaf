"""Records to state, as a coordinator that loads its log: no commands, no timers."""
