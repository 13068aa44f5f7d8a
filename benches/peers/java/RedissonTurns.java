import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The lock of Redisson, with its watchdog; with the argument {@code read} its readers-writer lock, with
 * a number its semaphore of so many permits, which end by themselves if their program does not return
 * them; with a {@code redlock://} address its RedLock on all servers there. The contenders of a process
 * share a client.
 */
public final class RedissonTurns {
  /** Thirty seconds, as the watchdog of its locks has. */
  private static final long LEASE = 30_000_000_000L;

  public static void main(String[] arguments) {
    String mode = arguments.length == 0 ? "" : arguments[0];
    Turns.serve((url, name, count) -> locks(mode, url, name, count));
  }

  private static List<Turns.Lock> locks(String mode, String url, String name, int count) {
    List<Turns.Lock> locks = new ArrayList<>();
    if (url.startsWith("redlock://")) {
      List<RedissonClient> clients = new ArrayList<>();
      for (String host : url.substring("redlock://".length()).split("/")[0].split(",")) {
        clients.add(client("redis://" + host));
      }
      for (int number = 0; number < count; number++) {
        RLock[] nodes = clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        locks.add(lock(new RedissonRedLock(nodes)));
      }
      return locks;
    }
    RedissonClient client = client(url);
    for (int number = 0; number < count; number++) {
      // The owner of a lock is the thread.
      if (mode.isEmpty()) {
        locks.add(lock(client.getLock(name)));
      } else if (mode.equals("read")) {
        locks.add(lock(client.getReadWriteLock(name).readLock()));
      } else {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(Integer.parseInt(mode));
        locks.add(permit(semaphore));
      }
    }
    return locks;
  }

  private static RedissonClient client(String url) {
    Config config = new Config();
    config.useSingleServer().setAddress(url);
    return Redisson.create(config);
  }

  private static Turns.Lock lock(RLock lock) {
    return new Turns.Lock() {
      public boolean acquire(long nanos) throws InterruptedException {
        return lock.tryLock(nanos, TimeUnit.NANOSECONDS);
      }

      public void release() {
        lock.unlock();
      }
    };
  }

  private static Turns.Lock permit(RPermitExpirableSemaphore semaphore) {
    return new Turns.Lock() {
      private String id;

      public boolean acquire(long nanos) throws InterruptedException {
        id = semaphore.tryAcquire(nanos, LEASE, TimeUnit.NANOSECONDS);
        return id != null;
      }

      public void release() {
        semaphore.release(id);
      }
    };
  }
}
