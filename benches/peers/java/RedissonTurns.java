import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The lock of Redisson, with its watchdog. The contenders of a process share a client. */
public final class RedissonTurns {
  public static void main(String[] arguments) {
    Turns.serve(RedissonTurns::locks);
  }

  private static List<Turns.Lock> locks(String url, String name, int count) {
    Config config = new Config();
    config.useSingleServer().setAddress(url);
    RedissonClient client = Redisson.create(config);
    List<Turns.Lock> locks = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      // Its owner is the thread.
      RLock lock = client.getLock(name);
      locks.add(
          new Turns.Lock() {
            public boolean acquire(long nanos) throws InterruptedException {
              return lock.tryLock(nanos, TimeUnit.NANOSECONDS);
            }

            public void release() {
              lock.unlock();
            }
          });
    }
    return locks;
  }
}
