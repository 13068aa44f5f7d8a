import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * The mutex of Curator; with the argument {@code read} its readers-writer lock, with a number its
 * semaphore of so many permits. The contenders of a process share a session.
 */
public final class CuratorTurns {
  public static void main(String[] arguments) {
    String mode = arguments.length == 0 ? "" : arguments[0];
    Turns.serve((url, name, count) -> locks(mode, url, name, count));
  }

  private static List<Turns.Lock> locks(String mode, String url, String name, int count)
      throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(
            URI.create(url).getAuthority(), new ExponentialBackoffRetry(1000, 3));
    client.start();
    client.blockUntilConnected();
    List<Turns.Lock> locks = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      if (mode.isEmpty()) {
        locks.add(mutex(new InterProcessMutex(client, "/" + name)));
      } else if (mode.equals("read")) {
        locks.add(mutex(new InterProcessReadWriteLock(client, "/" + name).readLock()));
      } else {
        int permits = Integer.parseInt(mode);
        locks.add(permit(new InterProcessSemaphoreV2(client, "/" + name, permits)));
      }
    }
    return locks;
  }

  private static Turns.Lock mutex(InterProcessMutex mutex) {
    return new Turns.Lock() {
      public boolean acquire(long nanos) throws Exception {
        return mutex.acquire(nanos, TimeUnit.NANOSECONDS);
      }

      public void release() throws Exception {
        mutex.release();
      }
    };
  }

  private static Turns.Lock permit(InterProcessSemaphoreV2 semaphore) {
    return new Turns.Lock() {
      private Lease lease;

      public boolean acquire(long nanos) throws Exception {
        lease = semaphore.acquire(nanos, TimeUnit.NANOSECONDS);
        return lease != null;
      }

      public void release() {
        semaphore.returnLease(lease);
      }
    };
  }
}
