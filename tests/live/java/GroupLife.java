import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

/**
 * The life of one group: acts one after another, in a thread of its own, which also polls for the group's members
 * between the acts. Acts are either a script, or drawn by a seed for as long as the churn goes on.
 */
abstract class GroupLife {
    /** One thing that happens to a group. */
    interface Act {
        void run() throws Exception;
    }

    /** After this act the group is at rest: nobody writes to the coordinators' logs until the next act. */
    static final String SETTLE = "settle";

    final Cluster cluster;
    final String group;
    final String name;
    final Random random;
    private final Map<String, Integer> done = new TreeMap<>();
    private final Map<String, String> failed = new TreeMap<>();
    private final Deque<String> plan = new ArrayDeque<>();
    private boolean isBusy;
    private int pauseMsMax;
    private long nextActMs;

    /** `name` begins the names of topics and clients; `group` is the id. */
    GroupLife(Cluster cluster, String group, String name, long seed) {
        this.cluster = cluster;
        this.group = group;
        this.name = name;
        this.random = new Random(seed);
    }

    void start() {
        Thread thread = new Thread(this::live, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** What can happen, by name. */
    abstract Map<String, Act> acts();

    /** Acts which show all that this kind of group can do, in order; the last is SETTLE. */
    abstract List<String> script();

    /** Acts of which one is drawn at a time; what is often here happens often. */
    abstract List<String> churn();

    /** Topics, configs. */
    abstract void begin() throws Exception;

    /** What members do between acts; takes a moment. */
    abstract void rest() throws Exception;

    /** What the group ends with: which of its members are there, for the test to know. */
    abstract Map<String, Object> facts();

    synchronized void plan(List<String> acts) {
        plan.addAll(acts);
        notifyAll();
    }

    synchronized void startChurn(int pauseMsMax) {
        this.pauseMsMax = pauseMsMax;
    }

    synchronized void stopChurn() {
        pauseMsMax = 0;
    }

    /** Wait until nothing is planned and nothing happens. */
    synchronized void await() throws InterruptedException {
        while (isBusy || !plan.isEmpty()) {
            wait(50);
        }
    }

    synchronized Map<String, Integer> done() {
        return new TreeMap<>(done);
    }

    /** The last failure of each act that ever failed. */
    synchronized Map<String, String> failed() {
        return new TreeMap<>(failed);
    }

    private void live() {
        perform("begin", this::begin);
        while (true) {
            String act = next();
            try {
                if (act == null) {
                    rest();
                } else {
                    perform(act, acts().get(act));
                }
            } catch (Exception error) { // of a broker which is away; the next poll may find it
                sleepMs(200);
            } finally {
                synchronized (this) {
                    isBusy = false;
                    notifyAll();
                }
            }
        }
    }

    private synchronized String next() {
        String act = plan.poll();
        if (act == null && pauseMsMax > 0 && System.currentTimeMillis() >= nextActMs) {
            nextActMs = System.currentTimeMillis() + random.nextInt(pauseMsMax);
            act = churn().get(random.nextInt(churn().size()));
        }
        isBusy = act != null;
        return act;
    }

    private void perform(String act, Act step) {
        try {
            step.run();
            cluster.note(group, act);
            synchronized (this) {
                done.merge(act, 1, Integer::sum);
            }
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cluster.note(group, act, "error", cause.toString());
            synchronized (this) {
                failed.put(act, cause.toString());
            }
        }
    }

    static void sleepMs(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    <T> T any(List<T> items) {
        return items.get(random.nextInt(items.size()));
    }
}
