import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson behind lines of text.
 *
 * <p>Arguments: the server's address, or those of a cluster with commas in between, or those of servers that know
 * nothing of each other with pluses in between, or the name of a master, {@code @} and the addresses of its Sentinels,
 * and the watchdog's lease in milliseconds. A command is a line
 * {@code THREAD VERB KIND NAME [NUMBERS]}; its answer is a line that begins with the same word. Each
 * thread has its own queue of commands, and is an owner of locks of its own. The kinds are
 * {@code plain}, {@code fenced}, {@code read}, {@code write} and {@code red}, a lock in all servers. The end of the input ends it.
 */
public final class Peer {
  private final RedissonClient client;
  private final List<RedissonClient> clients;
  private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

  private Peer(List<RedissonClient> clients) {
    this.client = clients.get(0);
    this.clients = clients;
  }

  public static void main(String[] arguments) throws Exception {
    List<RedissonClient> clients = new ArrayList<>();
    for (String addresses : arguments[0].split("\\+")) {
      clients.add(connect(addresses, Long.parseLong(arguments[1])));
    }
    new Peer(clients).serve();
    // Threads of the client, and commands that wait for ever, must not keep the process.
    Runtime.getRuntime().halt(0);
  }

  private static RedissonClient connect(String where, long watchdog) {
    int at = where.indexOf('@');
    String[] addresses = where.substring(at + 1).split(",");
    Config config = new Config();
    config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(watchdog);
    if (at > 0) {
      config
          .useSentinelServers()
          .setMasterName(where.substring(0, at))
          .addSentinelAddress(addresses);
    } else if (addresses.length > 1) {
      config.useClusterServers().addNodeAddress(addresses);
    } else {
      config
          .useSingleServer()
          .setAddress(addresses[0])
          .setConnectionMinimumIdleSize(1)
          .setConnectionPoolSize(8)
          .setSubscriptionConnectionMinimumIdleSize(1)
          .setSubscriptionConnectionPoolSize(4);
    }
    return Redisson.create(config);
  }

  private void serve() throws Exception {
    say("main", "ready");
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      threads
          .computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
          .execute(() -> say(words[0], answer(words)));
    }
  }

  private static synchronized void say(String thread, String answer) {
    System.out.println(thread + " " + answer.replace('\n', ' '));
    System.out.flush();
  }

  private String answer(String[] words) {
    try {
      return obey(words);
    } catch (Throwable error) {
      return "error " + error;
    }
  }

  private String obey(String[] words) throws Exception {
    RLock lock = lock(words[2], words[3]);
    switch (words[1]) {
      case "lock": // milliseconds to wait, and of the lease; -1: for ever, and the watchdog's
        return lock(lock, Long.parseLong(words[4]), Long.parseLong(words[5]));
      case "unlock":
        lock.unlock();
        return "done";
      case "force-unlock":
        return Boolean.toString(lock.forceUnlock());
      case "is-locked":
        return Boolean.toString(lock.isLocked());
      case "is-mine":
        return Boolean.toString(lock.isHeldByCurrentThread());
      case "left":
        return Long.toString(lock.remainTimeToLive());
      case "count": // how often to take it and add one to a key, not in one step
        count(lock, Integer.parseInt(words[4]), words[5]);
        return "done";
      default:
        return "error no verb is called " + words[1];
    }
  }

  private RLock lock(String kind, String name) {
    switch (kind) {
      case "plain":
        return client.getLock(name);
      case "fenced":
        return client.getFencedLock(name);
      case "read":
        return client.getReadWriteLock(name).readLock();
      case "write":
        return client.getReadWriteLock(name).writeLock();
      case "red":
        return new RedissonRedLock(
            clients.stream().map(node -> node.getLock(name)).toArray(RLock[]::new));
      default:
        throw new IllegalArgumentException("no kind is called " + kind);
    }
  }

  private void count(RLock lock, int turns, String key) throws InterruptedException {
    RBucket<String> sum = client.getBucket(key, StringCodec.INSTANCE);
    for (int i = 0; i < turns; i++) {
      lock.lock();
      String seen = sum.get();
      Thread.yield();
      sum.set(Long.toString(seen == null ? 1 : Long.parseLong(seen) + 1));
      lock.unlock();
    }
  }

  /** Answers {@code got}, with the token where there is one, or {@code missed}. */
  private static String lock(RLock lock, long wait, long lease) throws InterruptedException {
    long patience = wait < 0 ? TimeUnit.DAYS.toMillis(1) : wait;
    if (lock instanceof RFencedLock) {
      Long token =
          ((RFencedLock) lock).tryLockAndGetToken(patience, lease, TimeUnit.MILLISECONDS);
      return token == null ? "missed" : "got " + token;
    }
    return lock.tryLock(patience, lease, TimeUnit.MILLISECONDS) ? "got" : "missed";
  }
}
