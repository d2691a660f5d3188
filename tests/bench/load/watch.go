package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	writers = 16
	// How long to wait for the last events after the last write.
	patience = 10 * time.Second
	// Between the last handshake and the first write: opening a thousand connections is not what is measured.
	settling = 2 * time.Second
)

var seqMark = []byte(`"seq":"`)

// watching is one run: writes at a steady rate, and when each of them was sent. A latency is the time from the moment a
// write is due to be sent until its event has been read, so waiting for a free connection counts as well.
type watching struct {
	*settings
	sent      []atomic.Int64
	started   time.Time
	delivered atomic.Int64
	protocol  string
	guard     sync.Mutex
	took      []float64
	failed    int
	problem   string
}

func watch(s *settings) (*result, error) {
	w := &watching{settings: s, sent: make([]atomic.Int64, int(s.rate*s.seconds)), started: time.Now()}
	clients, _, err := connect(s, writers)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readers sync.WaitGroup
	if err := w.open(ctx, clients[0], &readers); err != nil {
		return nil, err
	}
	time.Sleep(settling)
	begin, cpu := awaitGo()
	w.started = begin
	good := w.write(clients)
	found := &result{Protocol: w.protocol, Done: good, Errors: w.failed, FirstError: w.problem}
	found.Seconds = time.Since(begin).Seconds()
	found.Expected = good * w.audience()
	for deadline := time.Now().Add(patience); int(w.delivered.Load()) < found.Expected && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	found.ClientCPU = cpuSeconds() - cpu
	cancel()
	readers.Wait()
	found.Delivered = int(w.delivered.Load())
	found.latencies(w.took)
	return found, nil
}

// audience is how many watchers see one write.
func (w *watching) audience() int {
	if w.scoped {
		return 2
	}
	return w.watchers
}

// open starts every watch at the present revision, so that only what is written from now on is seen.
func (w *watching) open(ctx context.Context, first *client, readers *sync.WaitGroup) error {
	revision, err := w.revision(ctx, first)
	if err != nil {
		return err
	}
	config, err := tlsConfig(w.settings)
	if err != nil {
		return err
	}
	total := w.watchers
	if w.scoped {
		total++
	}
	return inParallel(total, 16, func(i int) error {
		query := url.Values{"watch": {"1"}, "resourceVersion": {revision}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"600"}}
		if w.scoped && i < w.watchers {
			query.Set("fieldSelector", "metadata.name="+w.name(i))
		}
		answer, err := newClient(w.settings, config, i).open(ctx, http.MethodGet, w.path+"?"+query.Encode(), nil)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(answer.Body, 400))
			answer.Body.Close()
			return fmt.Errorf("watch: %d %s", answer.StatusCode, text)
		}
		w.guard.Lock()
		w.protocol = answer.Proto
		w.guard.Unlock()
		readers.Go(func() { w.read(answer.Body) })
		return nil
	})
}

func (w *watching) revision(ctx context.Context, c *client) (string, error) {
	answer, err := c.open(ctx, http.MethodGet, w.path+"?limit=1", nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err = json.NewDecoder(answer.Body).Decode(&page)
	return page.Metadata.ResourceVersion, err
}

func (w *watching) read(body io.ReadCloser) {
	defer body.Close()
	lines := bufio.NewReaderSize(body, 32<<10)
	var took []float64
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			break
		}
		at := bytes.Index(line, seqMark)
		if at < 0 {
			continue
		}
		digits := line[at+len(seqMark):]
		seq, err := strconv.Atoi(string(digits[:bytes.IndexByte(digits, '"')]))
		if err != nil || seq < 0 || seq >= len(w.sent) {
			continue
		}
		took = append(took, float64(int64(time.Since(w.started))-w.sent[seq].Load())/1e6)
		w.delivered.Add(1)
	}
	w.guard.Lock()
	defer w.guard.Unlock()
	w.took = append(w.took, took...)
}

// write sends the writes when they are due, whether or not the earlier ones were answered.
func (w *watching) write(clients []*client) int {
	due := make(chan int, len(w.sent))
	var group sync.WaitGroup
	var good atomic.Int64
	for _, each := range clients {
		group.Go(func() {
			for seq := range due {
				name := w.name(seq % w.count)
				_, err := each.do(http.MethodPut, w.path+"/"+name, w.body.render(name, seq), http.StatusOK)
				if err == nil {
					good.Add(1)
					continue
				}
				w.guard.Lock()
				w.failed++
				w.problem = err.Error()
				w.guard.Unlock()
			}
		})
	}
	for seq := range w.sent {
		time.Sleep(time.Until(w.started.Add(time.Duration(float64(seq) / w.rate * float64(time.Second)))))
		w.sent[seq].Store(int64(time.Since(w.started)))
		due <- seq
	}
	close(due)
	group.Wait()
	return int(good.Load())
}
