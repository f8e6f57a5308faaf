import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers of the classic or the consumer protocol, or of both at a time, which come, go, crash, commit. */
final class ConsumerLife extends GroupLife {
    /** What the n-th member that ever joined is like. */
    interface Style {
        Map<String, String> settings(int joined);
    }

    private static final int MEMBERS_MAX = 3;
    private static final int PARTITIONS_MAX = 6;
    private static final Duration POLL = Duration.ofMillis(30);
    private static final long SETTLE_TIMEOUT_MS = 90_000;
    private static final long SETTLED_MS = 1_500;
    private static final List<String> METADATA = List.of("", "", "{\"step\": 7}", "größe → 組", "x".repeat(120));

    private record Member(int slot, Consumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> read) { }

    private final Style style;
    private final boolean isStatic;
    private final boolean isRegex;
    private final List<Member> members = new ArrayList<>();
    private int joined;
    private boolean readsBoth;
    private KafkaProducer<byte[], byte[]> producer;

    ConsumerLife(Cluster cluster, String group, String name, long seed, Style style, boolean isStatic, boolean isRegex) {
        super(cluster, group, name, seed);
        this.style = style;
        this.isStatic = isStatic;
        this.isRegex = isRegex;
    }

    @Override
    Map<String, Act> acts() {
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("join", this::join);
        acts.put("consume", this::consume);
        acts.put("transact", this::transact);
        acts.put("leave", () -> remove(GroupMembershipOperation.LEAVE_GROUP));
        acts.put("crash", () -> remove(GroupMembershipOperation.REMAIN_IN_GROUP));
        acts.put("grow", this::grow);
        acts.put("resubscribe", this::resubscribe);
        acts.put(SETTLE, this::settle);
        return acts;
    }

    @Override
    List<String> script() {
        return List.of("join", "consume", "join", SETTLE, "consume", "transact", "join", "resubscribe", SETTLE, "consume",
            "crash", "leave", "grow", "join", SETTLE, "consume", "transact", "consume", SETTLE);
    }

    @Override
    List<String> churn() {
        return List.of("join", "join", "join", "consume", "consume", "consume", "consume", "consume", "consume",
            "transact", "transact", "leave", "crash", "grow", "resubscribe");
    }

    @Override
    void begin() throws Exception {
        cluster.createTopic(topic("a"), 3);
        cluster.createTopic(topic("b"), 2);
    }

    @Override
    void rest() {
        members.forEach(this::poll);
        sleepMs(members.isEmpty() ? 100 : 150);
    }

    @Override
    Map<String, Object> facts() {
        return Map.of("members", members.size(), "topics", List.of(topic("a"), topic("b")));
    }

    private String topic(String which) {
        return name + "." + which;
    }

    private List<String> topics() {
        return readsBoth ? List.of(topic("a"), topic("b")) : List.of(topic("a"));
    }

    private void join() {
        if (members.size() == MEMBERS_MAX) {
            return;
        }
        Set<Integer> taken = new HashSet<>();
        members.forEach(member -> taken.add(member.slot()));
        int slot = 0;
        while (taken.contains(slot)) {
            slot++;
        }
        Properties settings = cluster.client(name + "-" + slot,
            "group.id", group, "enable.auto.commit", "false", "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", "200");
        settings.putAll(style.settings(joined++));
        if (isStatic) {
            settings.put("group.instance.id", name + "-instance-" + slot);
        }
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Member member = new Member(slot, consumer, new HashMap<>());
        members.add(member);
        subscribe(member);
    }

    private void subscribe(Member member) {
        if (isRegex) {
            member.consumer().subscribe(new SubscriptionPattern(name + (readsBoth ? "\\.[ab]" : "\\.a")));
        } else {
            member.consumer().subscribe(topics());
        }
    }

    private void resubscribe() {
        readsBoth = !readsBoth;
        members.forEach(this::subscribe);
    }

    private void remove(GroupMembershipOperation how) {
        if (members.size() < 2) {
            return;
        }
        Member member = any(members);
        members.remove(member);
        member.consumer().close(CloseOptions.groupMembershipOperation(how).withTimeout(Duration.ofSeconds(2)));
    }

    private void grow() throws Exception {
        if (cluster.partitionCount(topic("a")) < PARTITIONS_MAX) {
            cluster.addPartition(topic("a"));
        }
    }

    /** A member which may not go on (fenced, say) is given up; others may have its place. */
    private int poll(Member member) {
        try {
            var records = member.consumer().poll(POLL);
            records.forEach(record -> member.read().put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), any(METADATA))));
            member.read().keySet().retainAll(member.consumer().assignment());
            return records.count();
        } catch (KafkaException error) {
            cluster.note(group, "poll", "error", error.toString());
            if (members.remove(member)) {
                member.consumer().close(CloseOptions.timeout(Duration.ZERO));
            }
            return 0;
        }
    }

    private int pollAll() {
        return new ArrayList<>(members).stream().mapToInt(this::poll).sum();
    }

    private void read() throws Exception {
        int expected = 0;
        for (String topic : topics()) {
            int count = 2 + random.nextInt(6);
            cluster.produce(topic, count);
            expected += count * cluster.partitionCount(topic);
        }
        long deadline = System.currentTimeMillis() + 3_000;
        for (int seen = 0; seen < expected && System.currentTimeMillis() < deadline;) {
            seen += pollAll();
        }
    }

    private void consume() throws Exception {
        read();
        for (Member member : members) {
            if (!member.read().isEmpty()) {
                commit(member);
            }
        }
    }

    private void commit(Member member) {
        try {
            member.consumer().commitSync(member.read());
        } catch (CommitFailedException | RebalanceInProgressException error) { // polls will bring the member back
            cluster.note(group, "commit refused", "error", error.toString());
        }
        member.read().clear();
    }

    /** Consume, and commit what was read with a transaction, or abort it. */
    private void transact() throws Exception {
        read();
        for (Member member : members) {
            if (member.read().isEmpty()) {
                continue;
            }
            if (producer == null) {
                producer = cluster.transactionalProducer(name, Cluster.TRANSACTION_TIMEOUT_MS);
            }
            boolean isCommitted = random.nextInt(3) > 0;
            ConsumerGroupMetadata membership = member.consumer().groupMetadata();
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic("b"), 0, null, new byte[] {1}));
                producer.sendOffsetsToTransaction(member.read(), membership);
                if (isCommitted) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                Transactions.note(cluster, group, isCommitted ? "committed" : "aborted", member.read());
            } catch (KafkaException error) { // of another generation, or the broker is away
                cluster.note(group, "transaction refused", "error", error.toString());
                producer.close(Duration.ZERO);
                producer = null;
            }
            member.read().clear();
        }
    }

    /** Wait until every partition has one owner, and for a while nothing moves. */
    private void settle() {
        long deadline = System.currentTimeMillis() + SETTLE_TIMEOUT_MS;
        long since = 0;
        List<Set<TopicPartition>> before = List.of();
        while (since == 0 || System.currentTimeMillis() - since < SETTLED_MS) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not settled: " + before + " of " + topics());
            }
            pollAll();
            sleepMs(30);
            List<Set<TopicPartition>> now = new ArrayList<>();
            members.forEach(member -> now.add(new HashSet<>(member.consumer().assignment())));
            if (!isWhole(now) || !now.equals(before)) {
                since = 0;
            } else if (since == 0) {
                since = System.currentTimeMillis();
            }
            before = now;
        }
    }

    private boolean isWhole(List<Set<TopicPartition>> assignments) {
        if (members.isEmpty()) {
            return true;
        }
        Set<TopicPartition> wanted = new HashSet<>();
        for (String topic : topics()) {
            for (int partition = 0; partition < cluster.partitionCount(topic); partition++) {
                wanted.add(new TopicPartition(topic, partition));
            }
        }
        Set<TopicPartition> owned = new HashSet<>();
        assignments.forEach(owned::addAll);
        return owned.equals(wanted) && assignments.stream().mapToInt(Set::size).sum() == wanted.size();
    }
}
