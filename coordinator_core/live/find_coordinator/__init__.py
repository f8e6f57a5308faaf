"""FindCoordinator: which broker coordinates a key.

* `broker`: a broker's response, from its view of the cluster (KafkaApis.handleFindCoordinatorRequest).
* `internal_topics`: the coordinators' topics, which are created when they are first needed (AutoTopicCreationManager).
* `client`: how a client asks, retries and invalidates (AbstractCoordinator, NetworkClient.leastLoadedNode).

`coordinator_core.replay.lookup` has the partition of a key. Authorization is left out: every request is allowed, so the
errors GROUP_AUTHORIZATION_FAILED and TRANSACTIONAL_ID_AUTHORIZATION_FAILED do not occur here.
"""
