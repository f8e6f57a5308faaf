"""What if: a group's recorded history, simulated under other settings.

How it works
------------
1. `lifetimes` reads the log's evidence of members: which joined when, how each departed, where it returned. `timeline`
   adds when topics grew, how the group was configured, and the rebalances. Each fact that caused a recorded rebalance
   is a *mark* (`Mark`): life 4 began, life 2 ended, the topics grew.
2. What the log does not show is not guessed but read in several ways (`hypotheses`): a member that was silent and
   returned was paused, or died and was restarted; members of a first generation joined all at once, or one after
   another. What would matter only under the changed settings, such as a silence that the session bore, happened or
   not (`unseen`).
3. `runner` plays each hypothesis with real client models (`simulate.clients`) and the live coordinator on a virtual
   clock: first under the recorded settings, which is the baseline, then under the changed ones.
4. `compare` finds each recorded rebalance in the baseline by its marks. A hypothesis that does not reproduce it is
   refuted there; if no hypothesis reproduces it, what would have come of it is unknown. What happens to its marks under
   the changed settings is the verdict of that hypothesis. Where hypotheses disagree, the verdict is CANNOT_TELL, with
   all possible ones. What was before is measured by gold, and stays where both plays of a hypothesis are equal. Each
   played rebalance counts for one recorded rebalance, and totals are sums.
5. `bands` widens the other results of plays to what may have happened: clients have phases, and members of a first
   generation joined at unknown times (`first_generations`).
6. `share_groups` answers for epochs of share groups, whose members show no sign of life: bounds, without plays.
7. `shares` answers for records of share groups, from their state changes alone: bounds, without plays.

Everything is a function of the rows and the question: there is no clock, and random numbers are seeded by the number of
the hypothesis.
"""
