import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and two data nodes below a folder, until standard input ends; prints the address. */
public final class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(arguments[0]).getAbsolutePath());
        try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(2).build()) {
            cluster.waitActive();
            System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
            while (System.in.read() >= 0) { }
        }
    }
}
