// go-zookeeper's Lock behind lines of text.
//
// Argument: the server's address. A command is a line "THREAD VERB PATH"; its answer is a line that
// begins with the same word. The end of the input ends it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

type silent struct{}

func (silent) Printf(string, ...interface{}) {}

type peer struct {
	conn  *zk.Conn
	mutex sync.Mutex
	locks map[string]*zk.Lock
}

var answers sync.Mutex

func say(thread string, answer string) {
	answers.Lock()
	defer answers.Unlock()
	fmt.Printf("%s %s\n", thread, strings.ReplaceAll(answer, "\n", " "))
}

// One lock for each thread and path: a lock of this library knows one holder.
func (p *peer) lock(thread string, path string) *zk.Lock {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	key := thread + " " + path
	if p.locks[key] == nil {
		p.locks[key] = zk.NewLock(p.conn, path, zk.WorldACL(zk.PermAll))
	}
	return p.locks[key]
}

func (p *peer) obey(words []string) (string, error) {
	lock := p.lock(words[0], words[2])
	switch words[1] {
	case "lock": // for as long as it takes
		return "got", lock.Lock()
	case "unlock":
		return "done", lock.Unlock()
	}
	return "", fmt.Errorf("no verb is called %s", words[1])
}

func main() {
	conn, _, err := zk.Connect([]string{os.Args[1]}, 6*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		panic(err)
	}
	p := &peer{conn: conn, locks: map[string]*zk.Lock{}}
	say("main", "ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		go func() {
			answer, err := p.obey(words)
			if err != nil {
				answer = "error " + err.Error()
			}
			say(words[0], answer)
		}()
	}
}
