import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Does what its standard input says, a line each, and answers with a line. All in one thread: it owns the locks. */
public class Main {
  public static void main(String[] arguments) throws Exception {
    Config config = new Config();
    config.useSingleServer().setAddress(arguments[0]);
    RedissonClient client = Redisson.create(config);
    System.out.println("ready");
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ", 2);
      System.out.println(answer(client, words[0], words[1]));
    }
    client.shutdown();
  }

  private static String answer(RedissonClient client, String order, String name) {
    RLock lock = client.getLock(name);
    RFencedLock fenced = client.getFencedLock(name);
    try {
      switch (order) {
        case "lock":
          lock.lock();
          return "done";
        case "try":
          return lock.tryLock() ? "done" : "held";
        case "wait":
          return lock.tryLock(20, TimeUnit.SECONDS) ? "done" : "held";
        case "unlock":
          lock.unlock();
          return "done";
        case "fenced":
          return Long.toString(fenced.lockAndGetToken());
        default:
          return "no such order";
      }
    } catch (IllegalMonitorStateException error) {
      return "not the owner";
    } catch (Exception error) {
      return error.toString();
    }
  }
}
