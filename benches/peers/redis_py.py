"""The lock of redis-py as a peer of the bench. Each contender has a connection of its own."""

import redis

import turns


class Lock:
    def __init__(self, url, name):
        client = redis.Redis.from_url(url)
        client.ping()
        # What its documentation shows: a lease, and the pause between two looks that is its default.
        self.lock = client.lock(name, timeout=30, thread_local=False)

    def acquire(self, seconds):
        return self.lock.acquire(blocking_timeout=seconds)

    def release(self):
        self.lock.release()


if __name__ == "__main__":
    turns.serve(lambda url, name, count: [Lock(url, name) for _ in range(count)])
