// Package member has what the Go members share: settings, commands of standard input, callbacks to a file.
package member

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"
)

// Settings of a member, as the test run wrote them.
type Settings struct {
	Servers     string   `json:"servers"`
	Group       string   `json:"group"`
	Name        string   `json:"name"`
	Topics      []string `json:"topics"`
	SessionMs   int      `json:"session_ms"`
	HeartbeatMs int      `json:"heartbeat_ms"`
	CommitMs    int      `json:"commit_ms"`
	Callbacks   string   `json:"callbacks"`
}

// Member has its settings and the file of its callbacks.
type Member struct {
	Settings
	// Commands are lines of standard input, split at spaces. The end of the input ends the process without leaving.
	Commands chan []string
	lock     sync.Mutex
	out      *os.File
}

// Partition of a topic: [topic, number].
type Partition [2]any

// New reads the settings which the first argument names.
func New() *Member {
	bytes, err := os.ReadFile(os.Args[1])
	Must(err)
	me := &Member{Commands: make(chan []string, 16)}
	Must(json.Unmarshal(bytes, &me.Settings))
	me.out, err = os.OpenFile(me.Callbacks, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	Must(err)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			me.Commands <- strings.Fields(lines.Text())
		}
		os.Exit(1)
	}()
	return me
}

// Says notes a callback.
func (me *Member) Says(event string, partitions []Partition) {
	if partitions == nil {
		partitions = []Partition{}
	}
	line, err := json.Marshal(map[string]any{
		"at": time.Now().UnixMilli(), "group": me.Group, "member": me.Name, "event": event, "partitions": partitions,
	})
	Must(err)
	me.lock.Lock()
	defer me.lock.Unlock()
	_, err = me.out.Write(append(line, '\n'))
	Must(err)
}

// Flat has all partitions of a map by topic.
func Flat(assignment map[string][]int32) []Partition {
	var partitions []Partition
	for topic, numbers := range assignment {
		for _, number := range numbers {
			partitions = append(partitions, Partition{topic, number})
		}
	}
	return partitions
}

// Ms is a duration.
func Ms(count int) time.Duration { return time.Duration(count) * time.Millisecond }

// Must ends the process where there is an error.
func Must(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(2)
	}
}
