import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;

/**
 * A broker of any release, as its own main class starts it: `StockBroker SERVER.PROPERTIES [ZOOKEEPER-FOLDER PORT]`.
 *
 * Nothing of Kafka's is named here, so that one class runs with the jars of each release. ZooKeeper, for releases that
 * need one, lives in the same process. The process ends when its standard input does, in order after a line with "stop".
 */
public final class StockBroker {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what Kafka prints must not look like an answer
        if (args.length > 1) {
            startZooKeeper(new File(args[1]), Integer.parseInt(args[2]));
        }
        var main = Class.forName("kafka.Kafka").getMethod("main", String[].class);
        Thread broker = new Thread(() -> {
            try {
                main.invoke(null, (Object) new String[] {args[0]});
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }, "broker");
        broker.start();
        answers.println("{\"ok\": \"started\"}");
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            String line = lines.readLine();
            if (line == null) {
                Runtime.getRuntime().halt(0);
            }
        }
        answers.println("{\"ok\": \"stops\"}");
        System.exit(0); // Kafka's shutdown hook
    }

    private static void startZooKeeper(File folder, int port) throws Exception {
        Class<?> server = Class.forName("org.apache.zookeeper.server.ZooKeeperServer");
        Class<?> connections = Class.forName("org.apache.zookeeper.server.NIOServerCnxnFactory");
        Object zooKeeper = server.getConstructor(File.class, File.class, int.class).newInstance(folder, folder, 1000);
        Object factory = connections.getConstructor().newInstance();
        connections.getMethod("configure", InetSocketAddress.class, int.class)
            .invoke(factory, new InetSocketAddress("127.0.0.1", port), 100);
        connections.getMethod("startup", server).invoke(factory, zooKeeper);
    }
}
