"""Inference from history: owners, rebalances, redeliveries, archived records, anomalous commits.

How it works
------------
Silver has what the log says. Gold has the answers to users' questions, and some of these are not in the log itself.
This package has the rules, as pure functions from silver rows to gold rows; jobs read, call them, and write. Every
inferred answer has

* `method`: a short, stable name of the rule, in capitals (docs list them), and
* `confidence`: CERTAIN, where the log proves the answer; LIKELY, where evidence points to it; GUESS, where only a
  heuristic supports it. An unknown answer is null or UNKNOWN, never invented.

Inputs are sorted here before they are used, so that the answer is a function of the set of rows.

* `settings.InferenceSettings`: thresholds, and assumptions for what no log contains (delivery limit, lock duration).
* `configs.Configs`: configs over time, as the metadata log has them.
* `life.GroupLife`, `life.GroupCommits`: all silver rows of one group.
* `groups.judge_group`: owners, rebalances, commit anomalies and the days of one group. It calls `owners`,
  `last_commit_times`, `leave_reasons` (left or expired), `rebalances` (with `causes`, `reassignment`, `storms`) and
  `commit_anomalies`.
* `share_log.ShareLog`: the silver rows of the share partitions of one log partition, as columns.
* `shares.audit_share_log`: their redeliveries, archived records and days. It calls `evidence`, `redeliveries` and
  `archived`.
* `share_past`, `group_past`: what an audit keeps of share partitions and of groups, so that the next one continues.
  `audit_watermark`: the past of a group that need not be judged again. `commits_only`: groups with only ordinary new
  commits.
* `lag.lag_history`: lag at each commit, where end offsets were sampled. `log_anomalies`: where a log breaks the
  coordinators' rules, and what that means.
* `rows`: gold rows, as declared, without `cluster_id`.
"""
