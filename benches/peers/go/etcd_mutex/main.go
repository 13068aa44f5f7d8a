// The mutex of etcd's own Go client as a peer of the bench. The contenders of a process share a client;
// each has a session of its own, because that is who owns a mutex.
package main

import (
	"context"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"peers/turns"
)

type lock struct {
	mutex *concurrency.Mutex
}

func (l lock) Acquire(ctx context.Context) error { return l.mutex.Lock(ctx) }
func (l lock) Release() error                    { return l.mutex.Unlock(context.Background()) }

func locks(place, name string, count int) ([]turns.Lock, error) {
	parsed, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{parsed.Host},
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	all := []turns.Lock{}
	for range count {
		session, err := concurrency.NewSession(client)
		if err != nil {
			return nil, err
		}
		all = append(all, lock{concurrency.NewMutex(session, name)})
	}
	return all, nil
}

func main() { turns.Serve(locks) }
