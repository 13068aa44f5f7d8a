// Go's concurrency.Mutex behind lines of text.
//
// Argument: the endpoint. A command is a line "THREAD VERB NAME [NUMBERS]"; its answer is a line that
// begins with the same word. The end of the input ends it, and its sessions.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var answers sync.Mutex

func say(thread string, answer string) {
	answers.Lock()
	defer answers.Unlock()
	fmt.Println(thread, strings.ReplaceAll(answer, "\n", " "))
}

type thread struct {
	session   *concurrency.Session
	locks     map[string]*concurrency.Mutex
	elections map[string]*concurrency.Election
}

type peer struct {
	endpoint string
	mutex    sync.Mutex
	threads  map[string]*thread
}

func connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
}

// Each thread has a client and a session of its own.
func (p *peer) thread(name string) (*thread, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if known, ok := p.threads[name]; ok {
		return known, nil
	}
	client, err := connect(p.endpoint)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return nil, err
	}
	made := &thread{
		session:   session,
		locks:     map[string]*concurrency.Mutex{},
		elections: map[string]*concurrency.Election{},
	}
	p.threads[name] = made
	return made, nil
}

// lock NAME MS: waits so long, answers "got TOKEN" or "missed"; unlock NAME: answers "done".
// campaign NAME VALUE: waits until it leads, answers "got TERM"; resign NAME: answers "done".
// leader NAME: answers with the leader's value.
// crowd NAME COUNT MS: so many clients take turns for so long, answers "done TURNS".
func (p *peer) obey(who string, words []string) (string, error) {
	number := func(at int) int {
		if at >= len(words) {
			return 0
		}
		n, _ := strconv.Atoi(words[at])
		return n
	}
	switch words[0] {
	case "lock":
		t, err := p.thread(who)
		if err != nil {
			return "", err
		}
		mutex := concurrency.NewMutex(t.session, words[1])
		if number(2) == 0 {
			err = mutex.TryLock(context.Background())
		} else {
			limit := time.Duration(number(2)) * time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			err = mutex.Lock(ctx)
			cancel()
		}
		if err == concurrency.ErrLocked || err == context.DeadlineExceeded {
			return "missed", nil
		}
		if err != nil {
			return "", err
		}
		t.locks[words[1]] = mutex
		key, err := t.session.Client().Get(context.Background(), mutex.Key())
		if err != nil || len(key.Kvs) == 0 {
			return "", fmt.Errorf("the key of the lock is not there: %v", err)
		}
		return fmt.Sprintf("got %d", key.Kvs[0].CreateRevision), nil
	case "unlock":
		t, err := p.thread(who)
		if err != nil {
			return "", err
		}
		return "done", t.locks[words[1]].Unlock(context.Background())
	case "campaign":
		t, err := p.thread(who)
		if err != nil {
			return "", err
		}
		election := concurrency.NewElection(t.session, words[1])
		if err = election.Campaign(context.Background(), words[2]); err != nil {
			return "", err
		}
		t.elections[words[1]] = election
		return fmt.Sprintf("got %d", election.Rev()), nil
	case "resign":
		t, err := p.thread(who)
		if err != nil {
			return "", err
		}
		return "done", t.elections[words[1]].Resign(context.Background())
	case "leader":
		t, err := p.thread(who)
		if err != nil {
			return "", err
		}
		found, err := concurrency.NewElection(t.session, words[1]).Leader(context.Background())
		if err != nil {
			return "", err
		}
		return string(found.Kvs[0].Value), nil
	case "crowd":
		turns, err := crowd(p.endpoint, words[1], number(2), time.Duration(number(3))*time.Millisecond)
		return fmt.Sprintf("done %d", turns), err
	}
	return "", fmt.Errorf("no verb is called %s", words[0])
}

func crowd(endpoint string, name string, count int, span time.Duration) (int, error) {
	var group sync.WaitGroup
	turns, failures := make([]int, count), make([]error, count)
	sessions := make([]*concurrency.Session, count)
	for i := range sessions {
		client, err := connect(endpoint)
		if err != nil {
			return 0, err
		}
		defer client.Close()
		if sessions[i], err = concurrency.NewSession(client); err != nil {
			return 0, err
		}
	}
	end := time.Now().Add(span)
	for i := range sessions {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				mutex := concurrency.NewMutex(sessions[i], name)
				if failures[i] = mutex.Lock(context.Background()); failures[i] != nil {
					return
				}
				if failures[i] = mutex.Unlock(context.Background()); failures[i] != nil {
					return
				}
				turns[i]++
			}
		}()
	}
	group.Wait()
	all := 0
	for i := range turns {
		if failures[i] != nil {
			return 0, failures[i]
		}
		all += turns[i]
	}
	return all, nil
}

func main() {
	p := &peer{endpoint: os.Args[1], threads: map[string]*thread{}}
	say("main", "ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		go func() {
			answer, err := p.obey(words[0], words[1:])
			if err != nil {
				answer = "error " + err.Error()
			}
			say(words[0], answer)
		}()
	}
}
