import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** The mutex of Curator. The contenders of a process share a session. */
public final class CuratorTurns {
  public static void main(String[] arguments) {
    Turns.serve(CuratorTurns::locks);
  }

  private static List<Turns.Lock> locks(String url, String name, int count) throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(
            URI.create(url).getAuthority(), new ExponentialBackoffRetry(1000, 3));
    client.start();
    client.blockUntilConnected();
    List<Turns.Lock> locks = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      InterProcessMutex mutex = new InterProcessMutex(client, "/" + name);
      locks.add(
          new Turns.Lock() {
            public boolean acquire(long nanos) throws Exception {
              return mutex.acquire(nanos, TimeUnit.NANOSECONDS);
            }

            public void release() throws Exception {
              mutex.release();
            }
          });
    }
    return locks;
  }
}
