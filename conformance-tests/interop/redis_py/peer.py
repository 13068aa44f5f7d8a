"""redis-py's Lock behind lines of text.

Arguments: host and port of the server. A command is a line "THREAD VERB NAME [NUMBERS]"; its answer
is a line that begins with the same word. The end of the input ends it.
"""

import sys
import threading

import redis

answers = threading.Lock()


def say(thread, answer):
    with answers:
        print(thread, str(answer).replace("\n", " "), flush=True)


class Peer:
    def __init__(self, host, port):
        self.client = redis.Redis(host=host, port=port, decode_responses=False)
        self.client.ping()
        self.locks = {}

    def obey(self, thread, verb, name, *numbers):
        """lock: milliseconds to wait and of the lease, answers got or missed."""
        if verb == "lock":
            wait, lease = (int(number) / 1000 for number in numbers)
            lock = self.client.lock(name, timeout=lease, sleep=0.01, thread_local=False)
            got = lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)
            if got:
                self.locks[thread, name] = lock
            return "got" if got else "missed"
        if verb == "unlock":
            self.locks.pop((thread, name)).release()
            return "done"
        return "error no verb is called " + verb


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    say("main", "ready")

    def answer(thread, words):
        try:
            say(thread, peer.obey(thread, *words))
        except Exception as error:
            say(thread, f"error {type(error).__name__}: {error}")

    for line in sys.stdin:
        thread, *words = line.split()
        threading.Thread(target=answer, args=(thread, words), daemon=True).start()


main()
