"""A peer of the bench in Python: the same orders and answers as its own workers.

Orders come as lines of JSON on standard input, answers go to standard output; see
`benches/src/worker/mod.rs`. Each contender is a thread.
"""

import json
import sys
import threading
import time


class Contender:
    """A thread that takes turns at `lock`, whose `acquire(seconds)` says whether it was granted."""

    def __init__(self, number, lock):
        self.number, self.lock = number, lock

    def turns(self, end):
        """Takes turns until the end; a wait that the end cuts off counts with what it had lasted."""
        self.waits, self.taken = {}, []
        while True:
            began = time.monotonic()
            if began >= end:
                return
            taken = self.lock.acquire(end - began)
            now = time.monotonic_ns()
            wait = max(1, int(now - began * 1e9))
            # Three digits, as the histograms of the other side have.
            grain = max(1, 10 ** (len(str(wait)) - 3))
            wait = wait // grain * grain
            self.waits[wait] = self.waits.get(wait, 0) + 1
            if taken:
                self.taken.append((now, self.number))
                self.lock.release()


def turns(contenders, span):
    began = time.monotonic()
    end = began + span["secs"] + span["nanos"] / 1e9
    threads = [threading.Thread(target=each.turns, args=(end,)) for each in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = int((time.monotonic() - began) * 1e9)
    waits, taken = {}, []
    for each in contenders:
        taken.extend(each.taken)
        for wait, times in each.waits.items():
            waits[wait] = waits.get(wait, 0) + times
    return {
        "counts": [len(each.taken) for each in contenders],
        "took": {"secs": took // 10**9, "nanos": took % 10**9},
        "waits": sorted(waits.items()),
        "taken": taken,
    }


def say(answer):
    print(json.dumps(answer), flush=True)


def work(make):
    start = json.loads(sys.stdin.readline())
    role = start["role"]["Crowd"]
    numbers = range(role["first"], role["first"] + role["count"])
    locks = make(start["url"], start["name"], role["count"])
    contenders = [Contender(number, lock) for number, lock in zip(numbers, locks)]
    say("Ready")
    for line in sys.stdin:
        say({"Turns": turns(contenders, json.loads(line)["Turns"]["span"])})


def serve(make):
    """`make(url, name, count)` returns `count` locks of one name, each with `acquire` and `release`."""
    try:
        work(make)
    except Exception as error:
        say({"Failed": {"why": f"{type(error).__name__}: {error}"}})
        sys.exit(1)
