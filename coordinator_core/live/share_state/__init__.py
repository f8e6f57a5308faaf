"""The share coordinator: the state of every share partition in `__share_group_state`, and the code that writes it
(KIP-932).

* `state`, `combine`, `replay`: replay of single records. `kernels` and `columnar` do the same for whole logs.
* `commands`, `coordinator`: requests and jobs of a live coordinator partition; `messages`, `records`, `config`, and
* `persister`: how a broker's share partitions (`coordinator_core.live.share_partition`) reach their coordinators.
"""
