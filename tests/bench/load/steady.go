package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// Between two attempts of a request; the next one goes to the next server.
	retryPause = 50 * time.Millisecond
	// One attempt, and a request with all of its attempts; what takes longer is lost.
	attemptLimit = 30 * time.Second
	requestLimit = 60 * time.Second
)

// endured is what clients saw that go to another server when one fails, as a load balancer or a careful program does.
type endured struct {
	Done        int            `json:"done"`
	Created     int            `json:"created"`
	FailedFirst int            `json:"failed_first"`
	Lost        int            `json:"lost"`
	Stale       int            `json:"stale"`
	Unsure      []int          `json:"unsure"`
	Reasons     map[string]int `json:"reasons"`
	CalmMax     float64        `json:"calm_max_ms"`
	Max         float64        `json:"max_ms"`
	FirstError  string         `json:"first_error,omitempty"`
}

// steadily is one run. Every client creates an object, then reads it back, at a pace that does not depend on the others.
type steadily struct {
	*settings
	next   atomic.Int64
	marked atomic.Int64
	stop   chan struct{}
	guard  sync.Mutex
	found  endured
}

func steady(s *settings) (any, error) {
	clients, _, err := connect(s, s.clients)
	if err != nil {
		return nil, err
	}
	w := &steadily{settings: s, stop: make(chan struct{})}
	w.found.Reasons = map[string]int{}
	w.marked.Store(time.Now().Add(24 * time.Hour).UnixNano())
	started, _ := awaitGo()
	go w.listen()
	var group sync.WaitGroup
	// A turn is two requests.
	pace := time.Duration(2 * float64(s.clients) / s.rate * float64(time.Second))
	for i, each := range clients {
		group.Go(func() { w.work(each, i, started.Add(pace*time.Duration(i)/time.Duration(len(clients))), pace) })
	}
	group.Wait()
	slices.Sort(w.found.Unsure)
	w.found.Created = int(w.next.Load())
	return &w.found, nil
}

// listen waits for the caller's words: that something happens now, and that it is enough.
func (w *steadily) listen() {
	for {
		line, err := input.ReadString('\n')
		if err != nil || strings.TrimSpace(line) == "stop" {
			close(w.stop)
			return
		}
		w.marked.Store(time.Now().UnixNano())
	}
}

// work is one client. One that is late does not hurry to make up for it.
func (w *steadily) work(c *client, server int, due time.Time, pace time.Duration) {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Until(due)):
		}
		i := int(w.next.Add(1)) - 1
		name := w.name(i)
		if w.request(c, &server, http.MethodPost, w.path, w.body.render(name, i), http.StatusCreated) {
			w.request(c, &server, http.MethodGet, w.path+"/"+name, nil, http.StatusOK)
		} else {
			w.guard.Lock()
			w.found.Unsure = append(w.found.Unsure, i)
			w.guard.Unlock()
		}
		if due = due.Add(pace); due.Before(time.Now()) {
			due = time.Now()
		}
	}
}

// request tries until one server has answered for good, and tells whether it is done.
func (w *steadily) request(c *client, server *int, method, path string, body []byte, want int) bool {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		c.url = w.urls[*server%len(w.urls)]
		ctx, cancel := context.WithTimeout(context.Background(), attemptLimit)
		answer, err := c.doWithin(ctx, method, path, body, want)
		cancel()
		// An earlier attempt may have created it before its server went away; nobody else uses these names.
		created := attempt > 0 && method == http.MethodPost && answer.status == http.StatusConflict && strings.Contains(string(answer.text), "AlreadyExists")
		if err == nil || created {
			w.done(began)
			return true
		}
		status := answer.status
		if status == want {
			// It began well, and was cut off.
			status = 0
		}
		w.failed(attempt, reason(status, err))
		if !retriable(status) || time.Since(began) > requestLimit {
			w.lose(err, method == http.MethodGet && status == http.StatusNotFound)
			return false
		}
		*server++
		time.Sleep(retryPause)
	}
}

// retriable: no answer at all (0), too many requests, unavailable, or timed out.
func retriable(status int) bool {
	return status == 0 || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

func reason(status int, err error) string {
	switch {
	case status != 0:
		return strconv.Itoa(status)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer in %.0f s", attemptLimit.Seconds())
	default:
		return "cut off"
	}
}

func (w *steadily) done(began time.Time) {
	took, now := time.Since(began).Seconds()*1000, time.Now().UnixNano()
	w.guard.Lock()
	defer w.guard.Unlock()
	w.found.Done++
	if now < w.marked.Load() {
		w.found.CalmMax = max(w.found.CalmMax, took)
		return
	}
	w.found.Max = max(w.found.Max, took)
}

func (w *steadily) failed(attempt int, why string) {
	w.guard.Lock()
	defer w.guard.Unlock()
	w.found.Reasons[why]++
	if attempt == 0 {
		w.found.FailedFirst++
	}
}

// lose gives a request up. What was acknowledged and is not found is another matter than a server that does not answer.
func (w *steadily) lose(err error, stale bool) {
	w.guard.Lock()
	defer w.guard.Unlock()
	if stale {
		w.found.Stale++
	} else {
		w.found.Lost++
	}
	if w.found.FirstError == "" {
		w.found.FirstError = err.Error()
	}
}
