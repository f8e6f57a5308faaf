import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ReadShareGroupStateRequest;
import org.apache.kafka.common.requests.ReadShareGroupStateResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Utils;

/** What Admin tells of groups, and the share coordinator of share partitions, with the ends of the logs at that time. */
final class Snapshots {
    private static final String CONSUMER_OFFSETS = "__consumer_offsets";
    private static final Set<String> COORDINATOR_TOPICS =
        Set.of(CONSUMER_OFFSETS, "__share_group_state", "__transaction_state");

    private final String address;
    private final Admin admin;

    /** `address` is host and port of a broker which coordinates all share groups. */
    Snapshots(String address, Admin admin) {
        this.address = address;
        this.admin = admin;
    }

    /** All groups, and the ends of the coordinators' logs before and after they were asked for. */
    Map<String, Object> snapshot() throws Exception {
        awaitGroupCoordinators();
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("ts0_ms", System.currentTimeMillis());
        facts.put("leo_before", logEnds());
        facts.put("groups", groups());
        facts.put("leo_after", logEnds());
        facts.put("ts1_ms", System.currentTimeMillis());
        return facts;
    }

    /**
     * Wait until every partition of __consumer_offsets is loaded. A list of groups leaves out, without a word, those
     * of partitions which are not; but who asks for the offsets of one group is told to try again. So one group, which
     * need not exist, is asked for in each partition.
     */
    private void awaitGroupCoordinators() throws Exception {
        if (!admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(CONSUMER_OFFSETS)) {
            return;
        }
        var topic = admin.describeTopics(List.of(CONSUMER_OFFSETS)).allTopicNames().get().get(CONSUMER_OFFSETS);
        int count = topic.partitions().size();
        Set<Integer> asked = new HashSet<>();
        for (int i = 0; asked.size() < count; i++) {
            String group = "live-test-" + i;
            if (asked.add(Utils.abs(group.hashCode()) % count)) {
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            }
        }
    }

    private Map<String, Long> logEnds() throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        names.removeIf(name -> !COORDINATOR_TOPICS.contains(name));
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
            topic.partitions().forEach(it ->
                asked.put(new TopicPartition(topic.name(), it.partition()), OffsetSpec.latest()));
        }
        Map<String, Long> ends = new TreeMap<>();
        admin.listOffsets(asked).all().get().forEach((at, end) -> ends.put(at.toString(), end.offset()));
        return ends;
    }

    private Map<String, Object> groups() throws Exception {
        Map<GroupType, List<String>> byType = new HashMap<>();
        for (GroupListing listing : admin.listGroups().all().get()) {
            byType.computeIfAbsent(listing.type().orElseThrow(), type -> new ArrayList<>()).add(listing.groupId());
        }
        var classic = byType.getOrDefault(GroupType.CLASSIC, List.of());
        var consumer = byType.getOrDefault(GroupType.CONSUMER, List.of());
        var share = byType.getOrDefault(GroupType.SHARE, List.of());
        var streams = byType.getOrDefault(GroupType.STREAMS, List.of());
        Map<String, Map<String, Object>> groups = new TreeMap<>();
        admin.describeClassicGroups(classic).all().get().forEach((id, group) -> groups.put(id, classicGroup(group)));
        admin.describeConsumerGroups(consumer).all().get().forEach((id, group) -> groups.put(id, consumerGroup(group)));
        admin.describeShareGroups(share).all().get().forEach((id, group) -> groups.put(id, shareGroup(group)));
        admin.describeStreamsGroups(streams).all().get().forEach((id, group) -> groups.put(id, streamsGroup(group)));
        Map<String, ListConsumerGroupOffsetsSpec> withOffsets = new HashMap<>();
        Stream.of(classic, consumer, streams).flatMap(List::stream)
            .forEach(group -> withOffsets.put(group, new ListConsumerGroupOffsetsSpec()));
        if (!withOffsets.isEmpty()) {
            admin.listConsumerGroupOffsets(withOffsets).all().get()
                .forEach((id, committed) -> groups.get(id).put("offsets", offsets(committed)));
        }
        for (String id : share) {
            addShareState(id, groups.get(id));
        }
        return new TreeMap<>(groups);
    }

    private static Map<String, Object> classicGroup(ClassicGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Classic");
        facts.put("state", group.state().toString());
        facts.put("protocol_type", group.protocol());
        facts.put("protocol_name", group.protocolData());
        facts.put("simple", group.isSimpleConsumerGroup());
        facts.put("members", group.members().stream().map(Snapshots::member).toList());
        return facts;
    }

    private static Map<String, Object> consumerGroup(ConsumerGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Consumer");
        facts.put("state", group.groupState().toString());
        facts.put("assignor", group.partitionAssignor());
        facts.put("group_epoch", group.groupEpoch().orElse(null));
        facts.put("target_epoch", group.targetAssignmentEpoch().orElse(null));
        facts.put("members", group.members().stream().map(member -> {
            Map<String, Object> told = member(member);
            told.put("rack", member.rackId().orElse(null));
            told.put("member_epoch", member.memberEpoch().orElse(null));
            told.put("upgraded", member.upgraded().orElse(null));
            told.put("target", member.targetAssignment().map(it -> partitions(it.topicPartitions())).orElse(null));
            return told;
        }).toList());
        return facts;
    }

    private static Map<String, Object> shareGroup(ShareGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Share");
        facts.put("state", group.groupState().toString());
        facts.put("group_epoch", group.groupEpoch());
        facts.put("target_epoch", group.targetAssignmentEpoch());
        facts.put("members", group.members().stream().map(Snapshots::shareMember).toList());
        return facts;
    }

    private static Map<String, Object> streamsGroup(StreamsGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Streams");
        facts.put("state", group.groupState().toString());
        facts.put("group_epoch", group.groupEpoch());
        facts.put("target_epoch", group.targetAssignmentEpoch());
        facts.put("topology_epoch", group.topologyEpoch());
        facts.put("members", group.members().stream().map(Snapshots::streamsMember).toList());
        facts.put("subtopologies", group.subtopologies().stream().map(Snapshots::subtopology).toList());
        return facts;
    }

    private static Map<String, Object> streamsMember(StreamsGroupMemberDescription member) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("member_id", member.memberId());
        facts.put("instance_id", member.instanceId().orElse(null));
        facts.put("client_id", member.clientId());
        facts.put("host", member.clientHost());
        facts.put("process_id", member.processId());
        facts.put("member_epoch", member.memberEpoch());
        facts.put("topology_epoch", member.topologyEpoch());
        facts.put("assignment", tasks(member.assignment()));
        facts.put("target", tasks(member.targetAssignment()));
        facts.put("tags", member.clientTags());
        return facts;
    }

    private static Map<String, Object> tasks(StreamsGroupMemberAssignment assignment) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("active", bySubtopology(assignment.activeTasks()));
        facts.put("standby", bySubtopology(assignment.standbyTasks()));
        facts.put("warmup", bySubtopology(assignment.warmupTasks()));
        return facts;
    }

    private static Map<String, List<Integer>> bySubtopology(List<StreamsGroupMemberAssignment.TaskIds> tasks) {
        Map<String, List<Integer>> facts = new TreeMap<>();
        tasks.forEach(task -> facts.put(task.subtopologyId(), task.partitions()));
        return facts;
    }

    private static Map<String, Object> subtopology(StreamsGroupSubtopologyDescription subtopology) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("id", subtopology.subtopologyId());
        facts.put("source_topics", subtopology.sourceTopics());
        facts.put("repartition_sinks", subtopology.repartitionSinkTopics());
        facts.put("repartition_sources", subtopology.repartitionSourceTopics().keySet());
        facts.put("changelogs", subtopology.stateChangelogTopics().keySet());
        return facts;
    }

    private static Map<String, Object> member(MemberDescription member) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("member_id", member.consumerId());
        facts.put("instance_id", member.groupInstanceId().orElse(null));
        facts.put("client_id", member.clientId());
        facts.put("host", member.host());
        facts.put("assignment", partitions(member.assignment().topicPartitions()));
        return facts;
    }

    private static Map<String, Object> shareMember(ShareMemberDescription member) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("member_id", member.consumerId());
        facts.put("client_id", member.clientId());
        facts.put("host", member.host());
        facts.put("rack", member.rackId().orElse(null));
        facts.put("member_epoch", member.memberEpoch());
        facts.put("assignment", partitions(member.assignment().topicPartitions()));
        return facts;
    }

    private static List<String> partitions(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().toList();
    }

    private static Map<String, Object> offsets(Map<TopicPartition, OffsetAndMetadata> committed) {
        Map<String, Object> offsets = new TreeMap<>();
        committed.forEach((at, offset) -> {
            if (offset != null) {
                Map<String, Object> facts = new LinkedHashMap<>();
                facts.put("offset", offset.offset());
                facts.put("leader_epoch", offset.leaderEpoch().orElse(null));
                facts.put("metadata", offset.metadata());
                offsets.put(at.toString(), facts);
            }
        });
        return offsets;
    }

    // ---- what the share coordinator keeps: no client may ask for it, so the request goes out by hand

    private void addShareState(String group, Map<String, Object> facts) throws Exception {
        Map<String, Object> listed = new TreeMap<>();
        Map<String, Object> states = new TreeMap<>();
        var startOffsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get();
        Map<String, Uuid> topicIds = new HashMap<>();
        Set<String> names = startOffsets.keySet().stream().map(TopicPartition::topic).collect(Collectors.toSet());
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> topicIds.put(name, topic.topicId()));
        String[] hostAndPort = address.split(":");
        try (var socket = new Socket(hostAndPort[0], Integer.parseInt(hostAndPort[1]))) {
            for (TopicPartition at : startOffsets.keySet()) {
                var offset = startOffsets.get(at);
                if (offset != null) {
                    Map<String, Object> told = new LinkedHashMap<>();
                    told.put("start_offset", offset.startOffset());
                    told.put("leader_epoch", offset.leaderEpoch().orElse(null));
                    listed.put(at.toString(), told);
                }
                states.put(at.toString(), shareState(socket, group, topicIds.get(at.topic()), at.partition()));
            }
        }
        facts.put("start_offsets", listed);
        facts.put("coordinator_state", states);
    }

    private static Map<String, Object> shareState(Socket socket, String group, Uuid topicId, int partition)
            throws Exception {
        var data = new ReadShareGroupStateRequestData()
            .setGroupId(group)
            .setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData()
                .setTopicId(topicId)
                .setPartitions(List.of(new ReadShareGroupStateRequestData.PartitionData()
                    .setPartition(partition)
                    .setLeaderEpoch(-1))))); // any other would be written down
        short version = ApiKeys.READ_SHARE_GROUP_STATE.latestVersion();
        var header = new RequestHeader(ApiKeys.READ_SHARE_GROUP_STATE, version, "live-test", 0);
        ByteBuffer request = new ReadShareGroupStateRequest.Builder(data).build(version).serializeWithHeader(header);
        var out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(request.remaining());
        out.write(request.array(), request.arrayOffset() + request.position(), request.remaining());
        out.flush();
        var in = new DataInputStream(socket.getInputStream());
        byte[] response = in.readNBytes(in.readInt());
        var parsed = (ReadShareGroupStateResponse) AbstractResponse.parseResponse(ByteBuffer.wrap(response), header);
        ReadShareGroupStateResponseData.PartitionResult result =
            parsed.data().results().get(0).partitions().get(0);
        List<Object> batches = new ArrayList<>();
        for (var batch : result.stateBatches()) {
            batches.add(List.of(
                batch.firstOffset(), batch.lastOffset(), (int) batch.deliveryState(), (int) batch.deliveryCount()));
        }
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("error", Errors.forCode(result.errorCode()).name());
        state.put("state_epoch", result.stateEpoch());
        state.put("start_offset", result.startOffset());
        state.put("batches", batches);
        return state;
    }
}
