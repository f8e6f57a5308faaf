"""What would have been: a group's recorded history under other settings.

Theory of operation
-------------------
1. `lifetimes` reads the log's evidence of members: who came when, how each went, where it came back. `timeline` adds
   when topics grew, how the group was configured, and the rebalances. Each fact that made a recorded rebalance is a
   *mark* (`Mark`): life 4 began, life 2 ended, the topics grew.
2. What the log cannot show is not guessed but read in several ways (`hypotheses`): a member that fell silent and came
   back was paused, or died and was restarted; members of a first generation came all at once, or one after another.
3. `runner` brings each hypothesis on stage: real client models (`simulate.clients`), the live coordinator, a virtual
   clock. First under the settings as they were: that is the baseline. Then under the changed ones.
4. `compare` finds each recorded rebalance by its marks in the baseline. A hypothesis which does not reproduce it is
   refuted there; what no hypothesis reproduces is beyond what the log can tell, and is left out of the comparison. What
   became of its marks under the changed settings is the verdict of that hypothesis. Where hypotheses disagree, the
   verdict is CANNOT_TELL, with all that it may be.
5. `bands` widens what some plays give to what may have been: clients have phases, and members of a first generation
   joined when nobody knows (`first_generations`).
6. `share_groups` does the same for epochs of share groups, whose members show no sign of life: bounds, no play.
7. `shares` does the same for records of share groups, from their state changes alone: bounds, no play.

Everything is a function of the rows and the question: no clock, and randomness is seeded by the number of the
hypothesis.
"""
