package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"time"
)

// A request is one byte, what to do, and eight, with how many bytes; each end tells the other of its end by one byte.
const (
	down = 'd'
	up   = 'u'
)

func source() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serveLoad(conn)
	}
}

func serveLoad(conn net.Conn) {
	defer conn.Close()
	request := make([]byte, 9)
	if _, err := io.ReadFull(conn, request); err != nil {
		return
	}
	count := int64(binary.BigEndian.Uint64(request[1:]))
	if request[0] == up {
		_, _ = io.CopyN(io.Discard, conn, count)
		_, _ = conn.Write([]byte{1})
	} else {
		pour(conn, count)
	}
	// The other end closes: nothing that is on its way may be lost.
	_, _ = io.Copy(io.Discard, conn)
}

func pour(conn net.Conn, count int64) {
	block := make([]byte, 64<<10)
	for count > 0 {
		n, err := conn.Write(block[:min(count, int64(len(block)))])
		if err != nil {
			return
		}
		count -= int64(n)
	}
}

func load(address, direction, bytes string) {
	count, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	request := make([]byte, 9)
	request[0] = direction[0]
	binary.BigEndian.PutUint64(request[1:], uint64(count))
	started := time.Now()
	if _, err = conn.Write(request); err != nil {
		log.Fatal(err)
	}
	if direction[0] == up {
		pour(conn, count)
		_, err = io.ReadFull(conn, request[:1])
	} else {
		_, err = io.CopyN(io.Discard, conn, count)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Since(started).Seconds())
}
