"""The share coordinator: what `__share_group_state` says of every share partition, and who writes it (KIP-932).

* `state`, `combine`, `replay`: a state and a record give a state. `kernels` and `columnar` do the same for whole logs.
* `commands`, `coordinator`: requests and jobs of a live coordinator partition; `messages`, `records`, `config`, and
* `persister`: how a broker's share partitions (`coordinator_core.share_partition`) reach their coordinators.
"""
