import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator behind lines of text.
 *
 * <p>Arguments: the server's address and the session's timeout in milliseconds. A command is a line
 * {@code THREAD VERB PATH [NUMBERS]}; its answer is a line that begins with the same word. Each thread
 * has its own queue of commands, and is an owner of locks of its own. The end of the input ends it.
 */
public final class Peer {
  private final CuratorFramework client;
  private final String address;
  private final int session;
  private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
  private final Map<String, InterProcessMutex> locks = new ConcurrentHashMap<>();
  private final Map<String, InterProcessReadWriteLock> pairs = new ConcurrentHashMap<>();

  private final Map<String, Candidate> candidates = new ConcurrentHashMap<>();

  private Peer(String address, int session) throws Exception {
    this.address = address;
    this.session = session;
    this.client = connect();
  }

  private CuratorFramework connect() throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(address, session, 10_000, new RetryNTimes(20, 100));
    client.start();
    client.blockUntilConnected();
    return client;
  }

  public static void main(String[] arguments) throws Exception {
    new Peer(arguments[0], Integer.parseInt(arguments[1])).serve();
    // Threads of the client, and commands that wait for ever, must not keep the process.
    Runtime.getRuntime().halt(0);
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
    InterProcessMutex lock =
        locks.computeIfAbsent(words[2], path -> new InterProcessMutex(client, path));
    InterProcessReadWriteLock pair =
        pairs.computeIfAbsent(words[2], path -> new InterProcessReadWriteLock(client, path));
    long wait;
    switch (words[1]) {
      case "lock": // milliseconds to wait; -1: for ever
        wait = Long.parseLong(words[3]);
        if (wait < 0) {
          lock.acquire();
          return "got";
        }
        return lock.acquire(wait, TimeUnit.MILLISECONDS) ? "got" : "missed";
      case "unlock":
        lock.release();
        return "done";
      case "write": // milliseconds to wait
        wait = Long.parseLong(words[3]);
        return pair.writeLock().acquire(wait, TimeUnit.MILLISECONDS) ? "got" : "missed";
      case "unwrite":
        pair.writeLock().release();
        return "done";
      case "read": // milliseconds to wait
        wait = Long.parseLong(words[3]);
        return pair.readLock().acquire(wait, TimeUnit.MILLISECONDS) ? "got" : "missed";
      case "downgrade": // a writer becomes a reader
        pair.readLock().acquire();
        pair.writeLock().release();
        return "got";
      case "unread":
        pair.readLock().release();
        return "done";
      case "lead": // with an id, when its turn comes
        Candidate candidate = new Candidate();
        LeaderSelector selector = new LeaderSelector(client, words[2], candidate);
        selector.setId(words[3]);
        candidates.put(words[2], candidate);
        selector.start();
        candidate.leads.await();
        return "got";
      case "resign":
        candidates.remove(words[2]).resigns.countDown();
        return "done";
      case "leader": // answers with its id
        return new LeaderSelector(client, words[2], new Candidate()).getLeader().getId();
      case "held": // by this thread
        return String.valueOf(lock.isOwnedByCurrentThread());
      case "contend": // clients with a session each, and milliseconds; answers the hand-offs
        return contend(words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
      default:
        return "error no verb is called " + words[1];
    }
  }

  /** Leads once, until it resigns. */
  private static final class Candidate extends LeaderSelectorListenerAdapter {
    private final CountDownLatch leads = new CountDownLatch(1);
    private final CountDownLatch resigns = new CountDownLatch(1);

    @Override
    public void takeLeadership(CuratorFramework client) throws Exception {
      leads.countDown();
      resigns.await();
    }
  }

  /** So many clients take the lock in turn and do nothing with it. */
  private String contend(String path, int clients, long millis) throws Exception {
    ExecutorService crowd = Executors.newFixedThreadPool(clients);
    CountDownLatch ready = new CountDownLatch(clients);
    CountDownLatch begin = new CountDownLatch(1);
    long[] turns = new long[clients];
    long[] end = new long[1];
    for (int n = 0; n < clients; n++) {
      int me = n;
      crowd.execute(
          () -> {
            try (CuratorFramework own = connect()) {
              InterProcessMutex lock = new InterProcessMutex(own, path);
              ready.countDown();
              begin.await();
              while (System.nanoTime() < end[0]) {
                lock.acquire();
                lock.release();
                turns[me]++;
              }
            } catch (Exception error) {
              turns[me] = Long.MIN_VALUE / 64;
            }
          });
    }
    ready.await();
    end[0] = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    begin.countDown();
    crowd.shutdown();
    crowd.awaitTermination(millis + 30_000, TimeUnit.MILLISECONDS);
    long sum = 0;
    for (long count : turns) {
      sum += count;
    }
    return "turns " + sum;
  }
}
