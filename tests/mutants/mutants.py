"""The planted faults, by part of the live side."""

from typing import Final

from tests.mutants.harness import Mutant

CLASSIC: Final = (
    Mutant(
        "a member which goes gets no answer",
        "live/classic/commands.py",
        "    _complete_join(context, member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))\n"
        "    group.remove(member.member_id)\n",
        "    group.remove(member.member_id)\n",
        "classic",
    ),
    Mutant(
        "who waits to sync is forgotten when a rebalance begins",
        "live/classic/commands.py",
        "        _reset_assignment(context, group, ErrorCode.REBALANCE_IN_PROGRESS)\n",
        "        pass\n",
        "classic",
    ),
    Mutant(
        "who waits to sync is forgotten when the log refuses",
        "live/classic/commands.py",
        "            _reset_assignment(later, group, error.code)\n",
        "",
        "classic",
    ),
    Mutant(
        "who has synced has no session",
        "live/classic/commands.py",
        "        if _complete_sync(context, member, response):\n"
        "            schedule_heartbeat(context, group, member.member_id)\n",
        "        _complete_sync(context, member, response)\n",
        "classic",
    ),
    Mutant(
        "a heartbeat of an old generation counts",
        "live/classic/commands.py",
        "    if request.generation_id != group.generation_id:\n"
        "        raise Refused(ErrorCode.ILLEGAL_GENERATION)\n"
        "    schedule_heartbeat",
        "    if request.generation_id > group.generation_id:\n"
        "        raise Refused(ErrorCode.ILLEGAL_GENERATION)\n"
        "    schedule_heartbeat",
        "classic",
    ),
    Mutant(
        "an id which was handed out has no time limit",
        "live/classic/commands.py",
        "        schedule_heartbeat(context, group, member_id, request.session_timeout_ms)\n",
        "",
        "classic",
    ),
    Mutant(
        "anybody assigns",
        "live/classic/commands.py",
        "return _store_assignment(context, request, group) if group.leader == member.member_id else NOTHING",
        "return _store_assignment(context, request, group)",
        "classic",
    ),
    Mutant(
        "a static member which is replaced waits for ever",
        "live/classic/commands.py",
        "    _complete_sync(context, old, SyncGroupResponse(error_code=fenced))\n",
        "",
        "classic",
    ),
    Mutant(
        "a static member is replaced though the log refused",
        "live/classic/commands.py",
        "            group.replace_static_member(instance_id, member_id, old_member_id)\n"
        "            schedule_heartbeat(later, group, old_member_id)\n",
        "",
        "classic",
    ),
    Mutant(
        "a generation does not count",
        "live/classic/live.py",
        "        self.generation_id += 1\n",
        "",
        "classic",
    ),
    Mutant(
        "a protocol is chosen which not all support",
        "live/classic/live.py",
        "if count == len(self.members)]",
        "if count]",
        "classic",
    ),
    Mutant(
        "an instance id outlives its member",
        "live/classic/live.py",
        "                self.static_members.pop(member.group_instance_id, None)\n",
        "                pass\n",
        "classic",
    ),
)

CONSUMER: Final = (
    Mutant(
        "a partition is taken from whoever has it",
        "live/consumer/reconciliation.py",
        "        if (topic_id, partition) not in self.group.owners:\n",
        "        if True:\n",
        "consumer",
    ),
    Mutant(
        "a partition is free before it is given up",
        "live/consumer/reconciliation.py",
        "        if not self.owns_any(self.member.pending_revocation):\n",
        "        if True:\n",
        "consumer",
    ),
    Mutant(
        "nobody minds how long giving up takes",
        "live/consumer/reconciliation.py",
        "        is_revoking = updated.state == MemberState.UNREVOKED_PARTITIONS\n",
        "        is_revoking = updated.state == MemberState.UNRELEASED_PARTITIONS\n",
        "consumer",
    ),
    Mutant(
        "the epoch before is good for any partitions",
        "live/consumer/membership.py",
        "    if owned is None:\n        return False\n    return all(",
        "    return True or all(",
        "consumer",
    ),
    Mutant(
        "nobody notices that a member has gone",
        "live/consumer/membership.py",
        "    group_epoch = group.group_epoch + 1\n",
        "    group_epoch = group.group_epoch\n",
        "consumer",
    ),
    Mutant(
        "nobody looks at the epoch of a member",
        "live/consumer/membership.py",
        "        check_epoch(member, epoch, owned)\n    return member\n\n\ndef static_member(",
        "        pass\n    return member\n\n\ndef static_member(",
        "consumer",
    ),
    Mutant(
        "nobody notices that a topic has changed",
        "live/consumer/update.py",
        "    if bump or new_hash != group.metadata_hash:\n",
        "    if bump:\n",
        "consumer",
    ),
    Mutant(
        "a refused epoch is taken to be written",
        "live/consumer/update.py",
        "    return refresh is None or context.now_ms >= refresh[0] or group.group_epoch < refresh[1]\n",
        "    return refresh is None or context.now_ms >= refresh[0]\n",
        "consumer",
    ),
    Mutant(
        "a heartbeat is no sign of life",
        "live/consumer/commands.py",
        "    schedule_session(context, group.group_id, member.member_id)\n    return Result(",
        "    return Result(",
        "consumer",
    ),
    Mutant(
        "the others keep their old targets",
        "live/consumer/target.py",
        "        if _written_target(context, group, updated, member_id) != ordered[member_id]:\n",
        "        if member_id == updated.member_id:\n",
        "consumer",
    ),
    Mutant(
        "a commit of an epoch to come is taken",
        "live/coordinator/modern_rules.py",
        "        if epoch > current:\n",
        "        if epoch > current + 1000:\n",
        "consumer",
    ),
    Mutant(
        "what a member had is never free again",
        "replay/consumer/replay.py",
        "        given_up = [place for place in had if place not in still and owners.get(place) == member_id]\n",
        "        pass\n",
        "consumer",
    ),
)

SHARE: Final = (
    Mutant(
        "any epoch of the past is good",
        "live/share/heartbeat.py",
        "        if received_epoch == member.previous_member_epoch:\n",
        "        if received_epoch <= member.previous_member_epoch:\n",
        "share",
    ),
    Mutant(
        "nobody in a share group notices that a member has gone",
        "live/share/heartbeat.py",
        "    member_id, group_epoch = member.member_id, group.group_epoch + 1\n",
        "    member_id, group_epoch = member.member_id, group.group_epoch\n",
        "share",
    ),
    Mutant(
        "a share member has no session",
        "live/share/heartbeat.py",
        "    schedule_session(context, TYPE_NAME, group.group_id, updated.member_id)\n",
        "",
        "share",
    ),
    Mutant(
        "a share member never follows its target",
        "live/share/heartbeat.py",
        "    if not is_behind and not force:\n",
        "    if not force:\n",
        "share",
    ),
    Mutant(
        "nobody notices that partitions are initialised",
        "live/share/heartbeat.py",
        "        derived.is_pending = any(",
        "        derived.is_pending = False and any(",
        "share",
    ),
    Mutant(
        "partitions are initialised and initialising",
        "live/share/partitions.py",
        "            without(state_partitions.initializing, ready),\n",
        "            state_partitions.initializing,\n",
        "share",
    ),
    Mutant(
        "an initialisation which is lost is not tried again",
        "live/share/partitions.py",
        "        is_fresh = age_ms < context.config.group_share_initialize_retry_interval_ms\n",
        "        is_fresh = True\n",
        "share",
    ),
    Mutant(
        "the other share members keep their old targets",
        "live/share/target.py",
        "        if target != group.target_assignment.get(member_id):\n",
        "        if member_id == updated.member_id:\n",
        "share",
    ),
)

SHARE_PARTITION: Final = (
    Mutant(
        "one delivery too many",
        "live/share_partition/in_flight.py",
        "        following = given_up if asked is AVAILABLE and self.delivery_count >= delivery_count_limit",
        "        following = given_up if asked is AVAILABLE and self.delivery_count > delivery_count_limit",
        "share partition",
    ),
    Mutant(
        "what could not be written stays done",
        "live/share_partition/acknowledge.py",
        "    if error is not None:\n        _roll_back(partition, changes)\n        return cause\n",
        "",
        "share partition",
    ),
    Mutant(
        "what runs out is not counted",
        "live/share_partition/acknowledge.py",
        "    else:\n"
        "        partition.delivery_complete_count += partition.record_count_from_start(first_offset, last_offset)\n",
        "",
        "share partition",
    ),
    Mutant(
        "what is given back is not looked for",
        "live/share_partition/acknowledge.py",
        "    if following is not ARCHIVED:\n        partition.find_next_fetch_offset = True\n",
        "    if following is not ARCHIVED:\n        pass\n",
        "share partition",
    ),
    Mutant(
        "the start offset passes a record by",
        "live/share_partition/window.py",
        "        partition.start_offset = max(partition.start_offset, settled_offset + 1)\n",
        "        partition.start_offset = max(partition.start_offset, settled_offset + 2)\n",
        "share partition",
    ),
    Mutant(
        "what is under way is fetched",
        "live/share_partition/window.py",
        "            if batch.whole.state is AVAILABLE and batch.whole.rollback is None:\n",
        "            if batch.whole.state is AVAILABLE:\n",
        "share partition",
    ),
)

SHARE_STATE: Final = (
    Mutant(
        "the leader before gets through",
        "live/share_state/commands.py",
        "highest is not None and highest > request.leader_epoch:",
        "highest is not None and highest > request.leader_epoch + 1:",
        "share partition",
    ),
    Mutant(
        "the state before is initialised again",
        "live/share_state/commands.py",
        "highest is not None and highest > request.state_epoch:",
        "highest is not None and highest > request.state_epoch + 1:",
        "share partition",
    ),
    Mutant(
        "a snapshot has what is new only",
        "live/share_state/commands.py",
        "combine_state_batches(state.state_batches, request.state_batches, start_offset, version),\n",
        "combine_state_batches((), request.state_batches, start_offset, version),\n",
        "share partition",
    ),
    Mutant(
        "a cold snapshot does not count",
        "live/share_state/commands.py",
        "state.next_snapshot(write_timestamp_ms=view.now_ms)",
        "state.next_snapshot(create_timestamp_ms=view.now_ms, write_timestamp_ms=view.now_ms)",
        "share partition",
    ),
    Mutant(
        "the older state wins",
        "replay/share_state/combine.py",
        "    if candidate_rank < rank:\n",
        "    if candidate_rank > rank:\n",
        "share partition",
    ),
)

ASSIGNORS: Final = (
    Mutant(
        "members keep more than their part",
        "live/assignors/server_uniform.py",
        "        kept_here, too_many = partitions[:quota], partitions[quota:]\n",
        "        kept_here, too_many = partitions, ()\n",
        "consumer",
    ),
    Mutant(
        "what is left over goes to the last",
        "live/assignors/server_range.py",
        "            start = quota * place + min(place, extra_count)\n",
        "            start = quota * place\n",
        "consumer",
    ),
    Mutant(
        "topics come in any order",
        "live/assignors/server_uniform.py",
        "            return -len(self.owners[topic_id]) / subscriber_count, subscriber_count, uuid_order(topic_id)\n",
        "            return len(self.owners[topic_id]) / subscriber_count, subscriber_count, uuid_order(topic_id)\n",
        "uniform",
    ),
    Mutant(
        "dynamic members go first",
        "live/assignors/server_range.py",
        "        return True, string_order(member_id)\n",
        "        return False, string_order(member_id)\n",
        "range",
    ),
    Mutant(
        "members are overfilled",
        "live/assignors/server_simple.py",
        "            excess_count = max(len(partitions) - self.wanted.get(member, 0), 0)\n",
        "            excess_count = 0\n",
        "simple",
    ),
)

MUTANTS: Final = (*CLASSIC, *CONSUMER, *SHARE, *SHARE_PARTITION, *SHARE_STATE, *ASSIGNORS)
