"""What may be inferred from the history: owners, rebalances, redeliveries, archived records, odd commits.

Theory of operation
-------------------
Silver says what the log says. Gold says what people ask, and some of that the log does not say outright. Here are
the rules, as pure functions from silver's rows to gold's; jobs read, hand over, and write. Every inferred answer
carries

* `method`: a short, stable name of the rule, in capitals (docs list them), and
* `confidence`: CERTAIN, where the log proves the answer; LIKELY, where evidence points one way; GUESS, where a rule
  of thumb is all there is. An answer that cannot be had is null or UNKNOWN, never made up.

Inputs are sorted here before they are used, so that the answer is a function of the set of rows.

* `settings.InferenceSettings`: thresholds, and what is assumed where no log tells it (delivery limit, lock duration).
* `configs.Configs`: what the metadata log tells of them, over time.
* `life.GroupLife`, `life.GroupCommits`: all silver rows of one group.
* `groups.judge_group`: owners, rebalances, commit anomalies and the days of one group. It calls `owners`,
  `commit_times`, `leave_reasons` (left or expired), `rebalances` (with `causes`, `reassignment`, `storms`) and
  `commit_anomalies`.
* `share_log.ShareLog`: the silver rows of the share partitions of one log partition, as columns.
* `shares.audit_share_log`: their redeliveries, archived records and days. It calls `evidence`, `redeliveries` and
  `archived`.
* `share_past`, `group_past`: what an audit keeps of share partitions and of groups, so that the next one goes on.
  `audit_watermark`: the past of a group that need not be judged again. `commits_only`: of which groups nothing but
  commits is new; `unchanged_groups`: of which these say more, and nothing else is new.
* `lag.lag_history`: lag at each commit, where end offsets were sampled. `log_anomalies`: where a log breaks the
  coordinators' rules, and what that means.
* `rows`: gold rows, as declared, less `cluster_id`.
"""
