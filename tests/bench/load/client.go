package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// client is one user of the server with one connection of its own, as separate programs have: HTTP/1.1 with keep-alive, or
// what the server prefers when HTTP/2 is allowed.
type client struct {
	*http.Client
	url    string
	token  string
	decode bool
}

type response struct {
	status   int
	bytes    int64
	protocol string
	text     []byte
}

// newClient is for the i-th client: they are spread over the servers.
func newClient(s *settings, config *tls.Config, i int) *client {
	transport := &http.Transport{
		TLSClientConfig:     config.Clone(),
		ForceAttemptHTTP2:   s.http2,
		DisableCompression:  !s.gzip,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     5 * time.Minute,
		ReadBufferSize:      16 << 10,
	}
	return &client{Client: &http.Client{Transport: transport}, url: s.urls[i%len(s.urls)], token: s.token, decode: s.decode}
}

func tlsConfig(s *settings) (*tls.Config, error) {
	var pairs []tls.Certificate
	if s.token == "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	authority, err := os.ReadFile(s.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %s", s.ca)
	}
	return &tls.Config{Certificates: pairs, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// connect makes the clients and opens their connections, so that no handshake is measured.
func connect(s *settings, count int) ([]*client, string, error) {
	config, err := tlsConfig(s)
	if err != nil {
		return nil, "", err
	}
	clients := make([]*client, count)
	protocols := make([]string, count)
	err = inParallel(count, 16, func(i int) error {
		clients[i] = newClient(s, config, i)
		answer, err := clients[i].do(http.MethodGet, "/version", nil, http.StatusOK)
		protocols[i] = answer.protocol
		return err
	})
	return clients, protocols[0], err
}

func inParallel(count, workers int, work func(int) error) error {
	numbers := make(chan int)
	failures := make(chan error, count)
	var group sync.WaitGroup
	for range min(workers, count) {
		group.Go(func() {
			for i := range numbers {
				if err := work(i); err != nil {
					failures <- err
				}
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// do sends one request and reads its answer to the end; an answer with another status than `want` is an error.
func (c *client) do(method, path string, body []byte, want int) (response, error) {
	return c.doWithin(context.Background(), method, path, body, want)
}

func (c *client) doWithin(ctx context.Context, method, path string, body []byte, want int) (response, error) {
	answer, err := c.open(ctx, method, path, body)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	found := response{status: answer.StatusCode, protocol: answer.Proto}
	if answer.StatusCode != want {
		found.text, _ = io.ReadAll(io.LimitReader(answer.Body, 400))
		io.Copy(io.Discard, answer.Body)
		return found, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, found.text)
	}
	if c.decode {
		return found, decoded(answer.Body, &found.bytes)
	}
	found.bytes, err = io.Copy(io.Discard, answer.Body)
	return found, err
}

// decoded reads an object as a program without generated types does.
func decoded(body io.Reader, size *int64) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	*size = int64(len(text))
	var object map[string]any
	return json.Unmarshal(text, &object)
}

func (c *client) open(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "bench/1.0")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return c.Do(request)
}
