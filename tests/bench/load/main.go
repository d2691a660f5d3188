// Command load is the compiled client of the bench: one measurement of one server for each run.
//
// It connects, prints "ready", waits for a line on its input, so that the caller can note the servers' CPU time first, then
// works and prints one JSON line. Standard library only, and nothing is decoded on the hot path unless -decode asks for it: what
// it costs is the same for every server. The Python side is tests/bench/loader.py.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	urls          []string
	ca, cert, key string
	token         string
	path          string
	body          template
	prefix        string
	first, count  int
	clients       int
	seconds       float64
	gzip, http2   bool
	decode        bool
	repeat        int
	watchers      int
	scoped        bool
	rate          float64
}

// result is what a run prints; fields that a mode has no use for stay out.
type result struct {
	Done       int     `json:"done"`
	Seconds    float64 `json:"seconds"`
	Errors     int     `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	Bytes      int64   `json:"bytes,omitempty"`
	Expected   int     `json:"expected,omitempty"`
	Delivered  int     `json:"delivered,omitempty"`
	Protocol   string  `json:"protocol"`
	ClientCPU  float64 `json:"client_cpu_seconds"`
}

func main() {
	// The client's own collector must not show in the latencies of the server.
	debug.SetGCPercent(400)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	modes := map[string]func(*settings) (any, error){
		"create": measured(create), "update": measured(update), "get": measured(get), "list": measured(list), "watch": measured(watch),
		"steady": steady,
	}
	if len(arguments) == 0 || modes[arguments[0]] == nil {
		return fmt.Errorf("say what to do: create, update, get, list, watch or steady")
	}
	s := &settings{}
	var body, servers, token string
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.StringVar(&servers, "url", "", "the server, https://host:port; several with commas")
	flags.StringVar(&s.ca, "ca", "", "its certificate authority")
	flags.StringVar(&s.cert, "cert", "", "our certificate")
	flags.StringVar(&s.key, "key", "", "our key")
	flags.StringVar(&token, "token", "", "file with a bearer token, instead of a certificate")
	flags.StringVar(&s.path, "path", "", "the collection to work on")
	flags.StringVar(&body, "body", "", "file with the object to write; @NAME@, @SEQ@ and @TEXT@ are filled in")
	flags.StringVar(&s.prefix, "prefix", "item-", "objects are named with this and a number")
	flags.IntVar(&s.first, "first", 0, "number of the first object")
	flags.IntVar(&s.count, "count", 0, "objects to create, or objects there are to choose from")
	flags.IntVar(&s.clients, "clients", 1, "clients at once, each with a connection of its own")
	flags.Float64Var(&s.seconds, "seconds", 5, "stop after this long")
	flags.BoolVar(&s.gzip, "gzip", false, "ask for gzip and unpack it, as client-go does")
	flags.BoolVar(&s.http2, "http2", false, "let the server choose HTTP/2, as client-go does")
	flags.BoolVar(&s.decode, "decode", false, "decode every answer, as programs that use it do")
	flags.IntVar(&s.repeat, "repeat", 5, "lists to do")
	flags.IntVar(&s.watchers, "watchers", 1, "watches to hold open, each on a connection of its own")
	flags.BoolVar(&s.scoped, "scoped", false, "each watcher follows one object, and one more follows all")
	flags.Float64Var(&s.rate, "rate", 200, "writes per second while watching")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	s.urls = strings.Split(servers, ",")
	if token != "" {
		content, err := os.ReadFile(token)
		if err != nil {
			return err
		}
		s.token = strings.TrimSpace(string(content))
	}
	if body != "" {
		content, err := os.ReadFile(body)
		if err != nil {
			return err
		}
		s.body = parseTemplate(content)
	}
	found, err := modes[arguments[0]](s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func measured(mode func(*settings) (*result, error)) func(*settings) (any, error) {
	return func(s *settings) (any, error) { return mode(s) }
}

// input is the caller: a line lets the work begin.
var input = bufio.NewReader(os.Stdin)

// awaitGo tells the caller that all is connected and waits for its word; it returns the time and our CPU time at that moment.
func awaitGo() (time.Time, float64) {
	fmt.Println("ready")
	input.ReadString('\n')
	return time.Now(), cpuSeconds()
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
