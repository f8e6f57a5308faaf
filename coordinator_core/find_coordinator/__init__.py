"""FindCoordinator: which broker coordinates a key.

* `broker`: what a broker answers, from its picture of the cluster (KafkaApis.handleFindCoordinatorRequest).
* `internal_topics`: the coordinators' topics, which are made when they are first asked for (AutoTopicCreationManager).
* `client`: how a client asks, retries and forgets (AbstractCoordinator, NetworkClient.leastLoadedNode).

Which partition a key belongs to is in `coordinator_core.lookup`. Authorization is left out: everybody may ask for
everything, so the errors GROUP_AUTHORIZATION_FAILED and TRANSACTIONAL_ID_AUTHORIZATION_FAILED never come from here.
"""
