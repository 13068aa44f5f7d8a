"""The lock of kazoo as a peer of the bench. The contenders of a process share a session."""

from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

import turns


class Lock:
    def __init__(self, client, path, number):
        self.lock = client.Lock(path, str(number))

    def acquire(self, seconds):
        try:
            return self.lock.acquire(timeout=seconds)
        except LockTimeout:
            return False

    def release(self):
        self.lock.release()


def make(url, name, count):
    client = KazooClient(hosts=urlsplit(url).netloc)
    client.start()
    return [Lock(client, f"/{name}", number) for number in range(count)]


if __name__ == "__main__":
    turns.serve(make)
