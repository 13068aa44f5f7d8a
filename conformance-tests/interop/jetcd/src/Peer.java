import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.lock.LockResponse;
import io.etcd.jetcd.support.CloseableClient;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * jetcd's lock client behind lines of text.
 *
 * <p>Argument: the server's URL. A command is a line {@code THREAD VERB NAME [NUMBER]}; its answer is a
 * line that begins with the same word. Each thread has its own queue of commands and a lease of its
 * own, which is kept alive. The end of the input ends it.
 */
public final class Peer {
  private static final long SECONDS = 60;

  private final Client client;
  private final Map<String, Owner> owners = new ConcurrentHashMap<>();

  private Peer(String url) {
    client = Client.builder().endpoints(url).build();
  }

  public static void main(String[] arguments) throws Exception {
    new Peer(arguments[0]).serve();
    // Threads of the client, and commands that wait for ever, must not keep the process.
    Runtime.getRuntime().halt(0);
  }

  private void serve() throws Exception {
    say("main", "ready");
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      Owner owner = owners.computeIfAbsent(words[0], name -> new Owner());
      owner.commands.execute(() -> say(words[0], answer(owner, words)));
    }
  }

  private static synchronized void say(String thread, String answer) {
    System.out.println(thread + " " + answer.replace('\n', ' '));
    System.out.flush();
  }

  private static String answer(Owner owner, String[] words) {
    try {
      return owner.obey(words);
    } catch (Throwable error) {
      return "error " + error;
    }
  }

  /** A lease, and what is held on it. */
  private final class Owner {
    final ExecutorService commands = Executors.newSingleThreadExecutor();
    private final Map<String, ByteSequence> held = new ConcurrentHashMap<>();
    private long lease;
    private CloseableClient beats;

    String obey(String[] words) throws Exception {
      switch (words[1]) {
        case "lock": // milliseconds to wait
          return lock(words[2], Long.parseLong(words[3]));
        case "unlock":
          client.getLockClient().unlock(held.remove(words[2])).get();
          return "done";
        default:
          return "error no verb is called " + words[1];
      }
    }

    private String lock(String name, long wait) throws Exception {
      if (beats == null) {
        lease = client.getLeaseClient().grant(SECONDS).get().getID();
        beats = client.getLeaseClient().keepAlive(lease, new Deaf());
      }
      // Whoever gives up keeps its place with this client, so that it waits to the end.
      LockResponse locked =
          client.getLockClient().lock(bytes(name), lease).get(wait, TimeUnit.MILLISECONDS);
      ByteSequence key = locked.getKey();
      held.put(name, key);
      long created = client.getKVClient().get(key).get().getKvs().get(0).getCreateRevision();
      return "got " + created;
    }
  }

  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, StandardCharsets.UTF_8);
  }

  /** Nobody asks how the lease is kept alive. */
  private static final class Deaf implements StreamObserver<LeaseKeepAliveResponse> {
    @Override
    public void onNext(LeaseKeepAliveResponse answer) {}

    @Override
    public void onError(Throwable error) {}

    @Override
    public void onCompleted() {}
  }
}
