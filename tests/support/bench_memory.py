"""Memory of proxies, called by bench_relay.sh: bench_memory.py CONNECTIONS NAME=PID:PORT…
Counts a process and its children. Pages that several processes have in common count for each in VmRSS, in parts in Pss."""

import socket
import sys
import time

REQUEST = b"GET /v1/models HTTP/1.1\r\nHost: relay.test\r\nx-api-key: RUNTOKEN\r\n\r\n"


def tree(pid):
    pids = [pid]
    for p in pids:
        with open(f"/proc/{p}/task/{p}/children") as f:
            pids += [int(c) for c in f.read().split()]
    return pids


def kib(pid, what):
    total = 0
    for p in tree(pid):
        with open(f"/proc/{p}/smaps_rollup") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith(what))
    return total


def call(port):
    conn = socket.create_connection(("127.0.0.1", port), 10)
    conn.sendall(REQUEST)
    if not conn.recv(65536).startswith(b"HTTP/1.1 200"):
        sys.exit(f"bench: the call on port {port} failed")
    return conn


def main():
    count = int(sys.argv[1])
    for name, pid, port in (a.replace("=", ":").split(":") for a in sys.argv[2:]):
        rss, pss = kib(int(pid), "Rss:"), kib(int(pid), "Pss:")
        held = [call(int(port)) for _ in range(count)]
        time.sleep(0.5)
        each = (kib(int(pid), "Pss:") - pss) / count
        print(f"  {name:10} VmRSS {rss:6}, Pss {pss:6} idle; {each:5.1f} for each connection")
        for conn in held:
            conn.close()


main()
