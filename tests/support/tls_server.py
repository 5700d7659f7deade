#!/usr/bin/env python3
"""TLS server of tests/tls.rs: tls_server.py MODE CERT.pem KEY.pem [1.1|1.2|1.3] [ADDRESS]

Says what happened on standard output, one line each, so that a test waits for a fact and not for a time:
  port N                       listening
  failed                       a connection ended before its handshake did
  open VERSION ALPN SNI        a handshake was completed
  closed COUNT SHA256 KEYSEEN  the connection ended after COUNT application bytes; KEYSEEN is 1 where they held "SECRET"
Modes: echo, clean, cut, reset (one answer after a blank line, then that end), close (echo, but close_notify after the first bytes),
late (as clean, unless the peer ends within two seconds after the blank line: then it says "hasty"),
serve (a whole answer to each head, says "request N", N counting connections from 1), once (the same, then it closes; such an answer says
so), impatient (as serve, but a connection without a request is closed after a second),
early (answers after the first bytes, reads nothing more), plain (no TLS at all), stall (accepts, stays silent)."""
import hashlib, os, socket, ssl, struct, sys, threading, time

mode, cert, key = sys.argv[1:4]
version = sys.argv[4] if len(sys.argv) > 4 else "1.3"
address = sys.argv[5] if len(sys.argv) > 5 else "127.0.0.1"
lock = threading.Lock()


def say(*words):
    with lock:
        os.write(1, (" ".join(str(w) for w in words) + "\n").encode())


def context():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    number = {"1.1": ssl.TLSVersion.TLSv1_1, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
    c.minimum_version = c.maximum_version = number
    if version == "1.1":
        c.set_ciphers("DEFAULT:@SECLEVEL=0")
    c.load_cert_chain(cert, key)
    c.set_alpn_protocols(["h2", "http/1.1"])

    def named(sock, name, _):
        sock.name_sent = name

    c.sni_callback = named
    return c


class Seen:
    def __init__(self):
        self.count, self.hash, self.tail, self.key = 0, hashlib.sha256(), b"", 0

    def add(self, data):
        self.count += len(data)
        self.hash.update(data)
        self.tail = (self.tail + data)[-len(data) - 8 :]
        self.key |= b"SECRET" in self.tail

    def tell(self):
        say("closed", self.count, self.hash.hexdigest(), int(self.key))


def talk(s, raw, seen, number):
    head = b""
    if mode == "impatient":
        s.settimeout(1)
    while True:
        try:
            data = s.recv(65536)
        except TimeoutError:
            s.unwrap()
            return
        if not data:
            return
        s.settimeout(None)
        seen.add(data)
        if mode in ("serve", "once", "impatient"):
            head += data
            if b"\r\n\r\n" in head:
                head = b""
                say("request", number)
                s.sendall(b"HTTP/1.1 200 OK\r\n" + (b"Connection: close\r\n" if mode == "once" else b"") + b"Content-Length: 2\r\n\r\n{}")
                if mode == "once":
                    s.unwrap()
                    return
            continue
        if mode == "echo":
            s.sendall(data)
        elif mode == "close":
            s.sendall(data)
            s.unwrap()
            return
        elif mode == "early":
            s.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
            time.sleep(3600)
        elif mode in ("clean", "cut", "reset", "late"):
            head += data
            if b"\r\n\r\n" not in head:
                continue
            if mode == "late":
                s.settimeout(2)
                try:
                    s.recv(1)
                    say("hasty")
                    return
                except TimeoutError:
                    s.settimeout(None)
            s.sendall(b"HTTP/1.1 200 OK\r\n\r\npart of a body")
            if mode in ("clean", "late"):
                s.unwrap()
            if mode == "reset":
                time.sleep(0.2)  # A reset overtakes what the peer has not read yet.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return


def serve(raw, number):
    seen = Seen()
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        if mode == "stall":
            while data := raw.recv(65536):
                seen.add(data)
            return
        if mode == "plain":
            seen.add(raw.recv(65536))
            raw.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            return
        s = ctx.wrap_socket(raw, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True)
        # `s` owns the descriptor from here on.
        raw = s
        s.name_sent = None
        try:
            s.do_handshake()
        except OSError:
            say("failed")
            return
        say("open", s.version(), s.selected_alpn_protocol(), s.name_sent)
        talk(s, s, seen, number)
    except OSError:
        pass
    finally:
        raw.close()
        seen.tell()


def end_with_the_test():
    # The test holds the other end of our standard input: nothing outlives a killed test.
    while os.read(0, 4096):
        pass
    os._exit(0)


threading.Thread(target=end_with_the_test, daemon=True).start()
ctx = context()
family = socket.AF_INET6 if ":" in address else socket.AF_INET
listener = socket.socket(family)
listener.bind((address, 0))
listener.listen(64)
say("port", listener.getsockname()[1])
accepted = 0
while True:
    accepted += 1
    threading.Thread(target=serve, args=(listener.accept()[0], accepted), daemon=True).start()
