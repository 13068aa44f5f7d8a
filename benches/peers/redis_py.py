"""The lock of redis-py as a peer of the bench: the same orders and answers as its own workers.

Orders come as lines of JSON on standard input, answers go to standard output; see
`benches/src/worker/mod.rs`. Each contender is a thread with a connection of its own.
"""

import json
import sys
import threading
import time

import redis


def turns(lock, end, seen, counts, number):
    """Takes turns until the end; a wait that the end cuts off counts with what it had lasted."""
    while True:
        began = time.monotonic()
        if began >= end:
            return
        taken = lock.acquire(blocking_timeout=end - began)
        wait = max(1, int((time.monotonic() - began) * 1e9))
        # Three digits, as the histograms of the other side have.
        grain = max(1, 10 ** (len(str(wait)) - 3))
        wait = wait // grain * grain
        seen[number][wait] = seen[number].get(wait, 0) + 1
        if taken:
            lock.release()
            counts[number] += 1


def crowd(start):
    count = start["role"]["Crowd"]["count"]
    clients = [redis.Redis.from_url(start["url"]) for _ in range(count)]
    # What its documentation shows: a lease, and the pause between two looks that is its default.
    locks = [client.lock(start["name"], timeout=30, thread_local=False) for client in clients]
    for client in clients:
        client.ping()
    yield "Ready"
    while True:
        order = json.loads((yield) or "null")
        if order is None:
            return
        span = order["Turns"]["span"]
        began = time.monotonic()
        end = began + span["secs"] + span["nanos"] / 1e9
        counts, seen = [0] * count, [{} for _ in range(count)]
        threads = [
            threading.Thread(target=turns, args=(lock, end, seen, counts, number))
            for number, lock in enumerate(locks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = int((time.monotonic() - began) * 1e9)
        waits = {}
        for each in seen:
            for wait, times in each.items():
                waits[wait] = waits.get(wait, 0) + times
        took = {"secs": took // 10**9, "nanos": took % 10**9}
        yield {"Turns": {"counts": counts, "took": took, "waits": sorted(waits.items())}}


def say(answer):
    print(json.dumps(answer), flush=True)


def main():
    work = crowd(json.loads(sys.stdin.readline()))
    say(next(work))
    next(work)
    while True:
        try:
            say(work.send(sys.stdin.readline()))
            next(work)
        except StopIteration:
            return


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say({"Failed": {"why": f"{type(error).__name__}: {error}"}})
        sys.exit(1)
