package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

func create(s *settings) (*result, error) {
	return closedLoop(s, s.count, func(c *client, i int) error {
		_, err := c.do(http.MethodPost, s.path, s.body.render(s.name(i), i), http.StatusCreated)
		return err
	})
}

// update puts each object in turn, without saying which version of it is meant.
func update(s *settings) (*result, error) {
	return closedLoop(s, 0, func(c *client, i int) error {
		name := s.name(i % s.count)
		_, err := c.do(http.MethodPut, s.path+"/"+name, s.body.render(name, i), http.StatusOK)
		return err
	})
}

func get(s *settings) (*result, error) {
	return closedLoop(s, 0, func(c *client, i int) error {
		_, err := c.do(http.MethodGet, s.path+"/"+s.name(rand.IntN(s.count)), nil, http.StatusOK)
		return err
	})
}

func list(s *settings) (*result, error) {
	clients, protocol, err := connect(s, 1)
	if err != nil {
		return nil, err
	}
	found := &result{Protocol: protocol}
	var took []float64
	// One that is not counted, for both sides' caches.
	if _, err := clients[0].do(http.MethodGet, s.path, nil, http.StatusOK); err != nil {
		return nil, err
	}
	started, cpu := awaitGo()
	for range s.repeat {
		before := time.Now()
		answer, err := clients[0].do(http.MethodGet, s.path, nil, http.StatusOK)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(before).Seconds()*1000)
		found.Bytes = answer.bytes
		found.Done++
		if time.Since(started).Seconds() > s.seconds {
			break
		}
	}
	found.Seconds, found.ClientCPU = time.Since(started).Seconds(), cpuSeconds()-cpu
	found.latencies(took)
	return found, nil
}

func (s *settings) name(i int) string {
	return fmt.Sprintf("%s%06d", s.prefix, s.first+i)
}

// closedLoop keeps every client busy: the next request goes out when the last one was answered. It ends after `count`
// requests (0: no such end) or when the time is up.
func closedLoop(s *settings, count int, work func(c *client, i int) error) (*result, error) {
	clients, protocol, err := connect(s, s.clients)
	if err != nil {
		return nil, err
	}
	found := &result{Protocol: protocol}
	var (
		group sync.WaitGroup
		guard sync.Mutex
		next  atomic.Int64
		all   []float64
	)
	started, cpu := awaitGo()
	deadline := started.Add(time.Duration(s.seconds * float64(time.Second)))
	for _, each := range clients {
		group.Go(func() {
			took := make([]float64, 0, 4096)
			failed, first := 0, ""
			for {
				i := int(next.Add(1)) - 1
				before := time.Now()
				if (count > 0 && i >= count) || before.After(deadline) {
					break
				}
				if err := work(each, i); err != nil {
					failed++
					if first == "" {
						first = err.Error()
					}
					continue
				}
				took = append(took, time.Since(before).Seconds()*1000)
			}
			guard.Lock()
			defer guard.Unlock()
			all = append(all, took...)
			found.Errors += failed
			if found.FirstError == "" {
				found.FirstError = first
			}
		})
	}
	group.Wait()
	found.Done = len(all)
	found.Seconds, found.ClientCPU = time.Since(started).Seconds(), cpuSeconds()-cpu
	found.latencies(all)
	return found, nil
}

func (r *result) latencies(milliseconds []float64) {
	if len(milliseconds) == 0 {
		return
	}
	slices.Sort(milliseconds)
	at := func(share float64) float64 { return milliseconds[int(share*float64(len(milliseconds)-1))] }
	r.P50, r.P99, r.Max = at(0.5), at(0.99), at(1)
}
