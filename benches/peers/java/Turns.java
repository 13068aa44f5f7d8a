import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A peer of the bench in Java: the same orders and answers as its own workers.
 *
 * <p>Orders come as lines of JSON on standard input, answers go to standard output; see {@code
 * benches/src/worker/mod.rs}. Each contender is a thread.
 */
final class Turns {
  /** The lock of one contender. */
  interface Lock {
    /** Waits no longer than so many nanoseconds; answers whether it was granted. */
    boolean acquire(long nanos) throws Exception;

    void release() throws Exception;
  }

  /** Makes the locks of one name, one for each contender. */
  interface Maker {
    List<Lock> make(String url, String name, int count) throws Exception;
  }

  /** What one contender has seen. */
  private static final class Seen {
    final List<Long> taken = new ArrayList<>();
    final Map<Long, Integer> waits = new TreeMap<>();
  }

  private final int first;
  private final List<Lock> locks;
  private final ExecutorService threads;

  private Turns(int first, List<Lock> locks) {
    this.first = first;
    this.locks = locks;
    this.threads = Executors.newFixedThreadPool(locks.size());
  }

  static void serve(Maker maker) {
    int code = 0;
    try {
      work(maker);
    } catch (Throwable error) {
      System.out.println("{\"Failed\":{\"why\":" + quoted(error.toString()) + "}}");
      code = 1;
    }
    System.out.flush();
    // Threads of the client must not keep the process.
    Runtime.getRuntime().halt(code);
  }

  private static void work(Maker maker) throws Exception {
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    String start = input.readLine();
    int count = (int) number(start, "count");
    List<Lock> locks = maker.make(word(start, "url"), word(start, "name"), count);
    Turns turns = new Turns((int) number(start, "first"), locks);
    say("\"Ready\"");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      say(turns.take(number(line, "secs") * 1_000_000_000L + number(line, "nanos")));
    }
  }

  /** All take turns for so many nanoseconds. */
  private String take(long span) throws Exception {
    long began = System.nanoTime();
    List<Callable<Seen>> each = new ArrayList<>();
    for (Lock lock : locks) {
      each.add(() -> turns(lock, began + span));
    }
    List<Future<Seen>> done = threads.invokeAll(each);
    long took = System.nanoTime() - began;
    StringBuilder counts = new StringBuilder();
    StringBuilder taken = new StringBuilder();
    Map<Long, Integer> waits = new TreeMap<>();
    for (int number = 0; number < done.size(); number++) {
      Seen seen = done.get(number).get();
      counts.append(counts.length() == 0 ? "" : ",").append(seen.taken.size());
      for (long at : seen.taken) {
        taken.append(taken.length() == 0 ? "[" : ",[").append(at);
        taken.append(',').append(first + number).append(']');
      }
      seen.waits.forEach((wait, times) -> waits.merge(wait, times, Integer::sum));
    }
    StringBuilder all = new StringBuilder();
    waits.forEach(
        (wait, times) ->
            all.append(all.length() == 0 ? "[" : ",[").append(wait).append(',').append(times).append(']'));
    return "{\"Turns\":{\"counts\":[" + counts + "],\"took\":{\"secs\":" + took / 1_000_000_000L
        + ",\"nanos\":" + took % 1_000_000_000L + "},\"waits\":[" + all + "],\"taken\":[" + taken
        + "]}}";
  }

  /** Takes turns until the end; a wait that the end cuts off counts with what it had lasted. */
  private static Seen turns(Lock lock, long end) throws Exception {
    Seen seen = new Seen();
    while (true) {
      long began = System.nanoTime();
      if (began >= end) {
        return seen;
      }
      boolean taken = lock.acquire(end - began);
      long now = System.nanoTime();
      seen.waits.merge(rounded(Math.max(1, now - began)), 1, Integer::sum);
      if (taken) {
        seen.taken.add(now);
        lock.release();
      }
    }
  }

  /** Three digits, as the histograms of the other side have. */
  private static long rounded(long wait) {
    long grain = 1;
    while (wait / grain >= 1000) {
      grain *= 10;
    }
    return wait / grain * grain;
  }

  private static void say(String answer) {
    System.out.println(answer);
    System.out.flush();
  }

  private static String word(String line, String name) {
    return found(line, "\"" + name + "\":\"([^\"]*)\"");
  }

  private static long number(String line, String name) {
    return Long.parseLong(found(line, "\"" + name + "\":(\\d+)"));
  }

  private static String found(String line, String pattern) {
    Matcher matcher = Pattern.compile(pattern).matcher(line);
    if (!matcher.find()) {
      throw new IllegalArgumentException("an order without " + pattern);
    }
    return matcher.group(1);
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      boolean plain = letter >= ' ' && letter < 127 && letter != '"' && letter != '\\';
      quoted.append(plain ? letter : ' ');
    }
    return quoted.append('"').toString();
  }
}
