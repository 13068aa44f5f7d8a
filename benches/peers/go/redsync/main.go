// The mutex of redsync as a peer of the bench, with its own pauses between two looks. The contenders of a
// process share a pool of connections to each server.
package main

import (
	"context"
	"errors"
	"strings"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"peers/turns"
)

type lock struct {
	mutex *redsync.Mutex
}

// It gives up after some looks; who wants it still begins again.
func (l lock) Acquire(ctx context.Context) error {
	for {
		err := l.mutex.LockContext(ctx)
		var taken *redsync.ErrTaken
		if err == nil || ctx.Err() != nil || !(errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)) {
			return err
		}
	}
}

func (l lock) Release() error {
	_, err := l.mutex.Unlock()
	return err
}

func locks(place, name string, count int) ([]turns.Lock, error) {
	pools := []pool.Pool{}
	_, hosts, _ := strings.Cut(place, "://")
	for host := range strings.SplitSeq(hosts, ",") {
		options, err := redis.ParseURL("redis://" + host)
		if err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	all := []turns.Lock{}
	sync := redsync.New(pools...)
	for range count {
		all = append(all, lock{sync.NewMutex(name)})
	}
	return all, nil
}

func main() { turns.Serve(locks) }
