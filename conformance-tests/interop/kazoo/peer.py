"""kazoo's Lock, ReadLock and WriteLock behind lines of text.

Arguments: the server's address, and the patterns of other clients' nodes that it shall respect,
separated by commas. A command is a line "THREAD VERB PATH [NUMBERS]"; its answer is a line that begins
with the same word. The end of the input ends it.
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

KINDS = {"lock": Lock, "read": ReadLock, "write": WriteLock}
answers = threading.Lock()


def say(thread, answer):
    with answers:
        print(thread, str(answer).replace("\n", " "), flush=True)


class Peer:
    def __init__(self, hosts, patterns):
        self.client = KazooClient(hosts=hosts, timeout=6.0)
        self.client.start()
        self.patterns = [pattern for pattern in patterns.split(",") if pattern]
        self.locks = {}

    def obey(self, thread, verb, path, *numbers):
        """lock, read, write: milliseconds to wait, answers got or missed."""
        if verb in KINDS:
            lock = KINDS[verb](
                self.client, path, thread, extra_lock_patterns=self.patterns
            )
            wait = int(numbers[0]) / 1000
            try:
                got = lock.acquire(blocking=wait > 0, timeout=wait or None)
            except LockTimeout:
                got = False
            if got:
                self.locks[thread, path] = lock
            return "got" if got else "missed"
        if verb in ("unlock", "unread", "unwrite"):
            self.locks.pop((thread, path)).release()
            return "done"
        return "error no verb is called " + verb


def main():
    peer = Peer(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
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
