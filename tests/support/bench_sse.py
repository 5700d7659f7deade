"""Latency of server-sent events, called by bench_relay.sh: bench_sse.py PROVIDER-PORT ROUNDS NAME=PORT…
The provider is a child of this program; each event carries the clock at its write, the client takes the clock at its read."""

import os
import re
import socket
import sys
import time

EVENTS, PAUSE = 200, 0.005
MARK = re.compile(rb'"at":(\d+)')
REQUEST = (
    b"POST /v1/messages HTTP/1.1\r\nHost: relay.test\r\nx-api-key: RUNTOKEN\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
)
BODY = b'{"model":"m","max_tokens":9,"stream":true,"messages":[]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole_request(conn):
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if end and (not length or len(body) >= int(length[1])):
            return True
        more = conn.recv(65536)
        if not more:
            return False
        data += more


def provide(listener):
    while True:
        conn, _ = listener.accept()
        if os.fork():
            conn.close()
            continue
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while whole_request(conn):
            conn.sendall(HEAD)
            for _ in range(EVENTS):
                time.sleep(PAUSE)
                conn.sendall(chunk(b'event: ping\ndata: {"type":"ping","at":%d}\n\n' % time.monotonic_ns()))
            conn.sendall(b"0\r\n\r\n")
        os._exit(0)


def measure(port):
    """Microseconds of each event."""
    conn = socket.create_connection(("127.0.0.1", port), 10)
    conn.settimeout(10)
    conn.sendall(REQUEST % (len(BODY), BODY))
    late, rest = [], b""
    while len(late) < EVENTS:
        more = conn.recv(65536)
        now = time.monotonic_ns()
        if not more:
            sys.exit(f"bench: the stream on port {port} ended after {len(late)} events")
        rest += more
        while event := re.search(rb'"at":(\d+)\}', rest):
            late.append((now - int(event[1])) / 1000)
            rest = rest[event.end() :]
    conn.close()
    return late


def main():
    port, rounds = int(sys.argv[1]), int(sys.argv[2])
    who = [(name, int(p)) for name, p in (a.split("=") for a in sys.argv[3:])]
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        import signal

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        provide(listener)
    try:
        late = {name: [] for name, _ in who}
        for _ in range(rounds):
            for name, p in who:
                late[name] += measure(p)
        p50 = {name: sorted(v)[len(v) // 2] for name, v in late.items()}
        for name, v in late.items():
            print(f"  {name:10} {p50[name]:7.0f} / {sorted(v)[len(v) * 99 // 100]:.0f}   ({p50[name] / p50[who[0][0]]:.2f})")
    finally:
        os.killpg(child, 15)


main()
