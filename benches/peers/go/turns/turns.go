// Package turns makes a Go program a peer of the bench: the same orders and answers as its own workers.
//
// Orders come as lines of JSON on standard input, answers go to standard output; see
// benches/src/worker/mod.rs. Each contender is a goroutine.
package turns

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is that of one contender.
type Lock interface {
	// Acquire waits until it is granted, or fails with the end of the context.
	Acquire(context.Context) error
	Release() error
}

// Maker makes so many locks of one name, one for each contender.
type Maker func(url, name string, count int) ([]Lock, error)

type start struct {
	URL  string `json:"url"`
	Name string `json:"name"`
	Role struct {
		Crowd struct {
			First int `json:"first"`
			Count int `json:"count"`
		}
	} `json:"role"`
}

type duration struct {
	Secs  int64 `json:"secs"`
	Nanos int64 `json:"nanos"`
}

type order struct {
	Turns struct {
		Span duration `json:"span"`
	}
}

type answer struct {
	Counts []int      `json:"counts"`
	Took   duration   `json:"took"`
	Waits  [][2]int64 `json:"waits"`
	Taken  [][2]int64 `json:"taken"`
}

type seen struct {
	taken []int64
	waits map[int64]int64
	err   error
}

// Serve does what it is told until there are no more orders.
func Serve(maker Maker) {
	if err := work(maker); err != nil {
		say(map[string]any{"Failed": map[string]string{"why": err.Error()}})
		os.Exit(1)
	}
}

func say(answer any) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func work(maker Maker) error {
	input := bufio.NewScanner(os.Stdin)
	if !input.Scan() {
		return input.Err()
	}
	var begin start
	if err := json.Unmarshal(input.Bytes(), &begin); err != nil {
		return err
	}
	crowd := begin.Role.Crowd
	locks, err := maker(begin.URL, begin.Name, crowd.Count)
	if err != nil {
		return err
	}
	say("Ready")
	for input.Scan() {
		var next order
		if err := json.Unmarshal(input.Bytes(), &next); err != nil {
			return err
		}
		span := time.Duration(next.Turns.Span.Secs*1e9 + next.Turns.Span.Nanos)
		taken, err := take(locks, crowd.First, span)
		if err != nil {
			return err
		}
		say(map[string]answer{"Turns": taken})
	}
	return input.Err()
}

// All take turns for so long.
func take(locks []Lock, first int, span time.Duration) (answer, error) {
	began := time.Now()
	all := make([]seen, len(locks))
	var group sync.WaitGroup
	for number, lock := range locks {
		group.Add(1)
		go func() {
			defer group.Done()
			all[number] = turns(lock, began.Add(span))
		}()
	}
	group.Wait()
	took := time.Since(began).Nanoseconds()
	done := answer{
		Counts: []int{},
		Took:   duration{took / 1e9, took % 1e9},
		Waits:  [][2]int64{},
		Taken:  [][2]int64{},
	}
	waits := map[int64]int64{}
	for number, each := range all {
		if each.err != nil {
			return done, each.err
		}
		done.Counts = append(done.Counts, len(each.taken))
		for _, at := range each.taken {
			done.Taken = append(done.Taken, [2]int64{at, int64(first + number)})
		}
		for wait, times := range each.waits {
			waits[wait] += times
		}
	}
	for wait, times := range waits {
		done.Waits = append(done.Waits, [2]int64{wait, times})
	}
	return done, nil
}

// Takes turns until the end; a wait that the end cuts off counts with what it had lasted.
func turns(lock Lock, end time.Time) seen {
	seen := seen{waits: map[int64]int64{}}
	// Without a deadline: servers are told of one, and answer a moment before it with errors of their own.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(time.Until(end), cancel).Stop()
	for {
		began := time.Now()
		if !began.Before(end) {
			return seen
		}
		err := lock.Acquire(ctx)
		seen.waits[rounded(max(1, time.Since(began).Nanoseconds()))]++
		switch {
		case err == nil:
			seen.taken = append(seen.taken, now())
			seen.err = lock.Release()
		case ctx.Err() != nil:
		default:
			seen.err = err
		}
		if seen.err != nil {
			return seen
		}
	}
}

// The clock that all processes of the machine share; that of Go's own times is not shown.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}

// Three digits, as the histograms of the other side have.
func rounded(wait int64) int64 {
	grain := int64(1)
	for wait/grain >= 1000 {
		grain *= 10
	}
	return wait / grain * grain
}
