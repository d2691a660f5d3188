// Rancher's remotedialer as a program of its own, so that Remuda's tunnel can be tried against it.
//
//	remotedialer server             listens on loopback and prints its port
//	remotedialer client URL KEY     keeps a session to a server, prints "connected" for each, and dials anything but port 9
//	remotedialer source             listens on loopback, prints its port, and sends or takes as much as it is asked to
//	remotedialer load ADDRESS down|up BYTES   asks a source for that, and prints the seconds it took
//
// The server's control paths: /connect is the tunnel, /clients lists who is connected, one key a line, and
// /forward?key=K&network=N&address=A opens a loopback port whose connections lead through the tunnel to that address.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rancher/remotedialer"
)

const token = "right"

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "server":
		log.Fatal(serve())
	case len(os.Args) == 4 && os.Args[1] == "client":
		connect(os.Args[2], os.Args[3])
	case len(os.Args) == 2 && os.Args[1] == "source":
		log.Fatal(source())
	case len(os.Args) == 5 && os.Args[1] == "load":
		load(os.Args[2], os.Args[3], os.Args[4])
	default:
		log.Fatal("usage: remotedialer server | client URL KEY | source | load ADDRESS down|up BYTES")
	}
}

func connect(url, key string) {
	headers := http.Header{"X-API-Tunnel-Token": {token}, "X-Key": {key}}
	allowed := func(_, address string) bool { return !strings.HasSuffix(address, ":9") }
	connected := func(context.Context, *remotedialer.Session) error {
		fmt.Println("connected")
		return nil
	}
	for {
		err := remotedialer.ConnectToProxy(context.Background(), url, headers, allowed, nil, connected)
		log.Print("session ended: ", err)
		time.Sleep(200 * time.Millisecond)
	}
}

func authorize(request *http.Request) (string, bool, error) {
	shown := request.Header.Get("X-API-Tunnel-Token")
	if shown != "" && shown != token {
		return "", false, errors.New("cluster not found")
	}
	return request.Header.Get("X-Key"), shown != "", nil
}

func serve() error {
	tunnels := remotedialer.New(authorize, remotedialer.DefaultErrorWriter)
	http.Handle("/connect", tunnels)
	http.HandleFunc("/clients", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(answer, strings.Join(tunnels.ListClients(), "\n"))
	})
	http.HandleFunc("/forward", func(answer http.ResponseWriter, request *http.Request) {
		asked := request.URL.Query()
		port, err := forward(tunnels.Dialer(asked.Get("key")), asked.Get("network"), asked.Get("address"))
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(answer, port)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return http.Serve(listener, nil)
}

func forward(dial remotedialer.Dialer, network, address string) (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	go func() {
		for {
			local, err := listener.Accept()
			if err != nil {
				return
			}
			go lead(local, dial, network, address)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func lead(local net.Conn, dial remotedialer.Dialer, network, address string) {
	defer local.Close()
	remote, err := dial(context.Background(), network, address)
	if err != nil {
		log.Print("dial: ", err)
		return
	}
	go func() {
		_, _ = io.Copy(remote, local)
		remote.Close()
	}()
	_, _ = io.Copy(local, remote)
}
