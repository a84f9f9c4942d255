// Command go_tls carries connections by TLS, for a client that speaks none: with Go's own stack.
//
//	go_tls -authority CA.pem -certificate CRT -key KEY LISTEN=TARGET ...
//
// Each LISTEN and TARGET is HOST:PORT. It prints "ready" once it listens everywhere, and ends when
// its standard input does. A connection whose handshake fails is closed, with a line that says why.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

func main() {
	authority := flag.String("authority", "", "who signs the servers' certificates")
	certificate := flag.String("certificate", "", "what servers are shown")
	key := flag.String("key", "", "its key")
	flag.Parse()
	config := options(*authority, *certificate, *key)
	for _, pair := range flag.Args() {
		listen, target, _ := strings.Cut(pair, "=")
		listener, err := net.Listen("tcp", listen)
		orEnd(err)
		go accept(listener, target, config)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func options(authority, certificate, key string) *tls.Config {
	trusted, err := os.ReadFile(authority)
	orEnd(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		orEnd(fmt.Errorf("%s holds no certificate", authority))
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	orEnd(err)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}
}

func accept(listener net.Listener, target string, config *tls.Config) {
	for {
		plain, err := listener.Accept()
		orEnd(err)
		go carry(plain, target, config)
	}
}

// carry passes bytes on both ways until one side ends.
func carry(plain net.Conn, target string, config *tls.Config) {
	defer plain.Close()
	secret, err := tls.Dial("tcp", target, config)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer secret.Close()
	go func() {
		_, _ = io.Copy(secret, plain)
		_ = secret.CloseWrite()
	}()
	_, _ = io.Copy(plain, secret)
}

func orEnd(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}
