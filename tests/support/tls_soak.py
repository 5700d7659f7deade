#!/usr/bin/env python3
"""TLS in front of a plain server, for tests: tls_soak.py CERT.pem KEY.pem PORT

Prints "port N"; each TLS connection there is carried to 127.0.0.1:PORT, bytes as they come. An end of the plain side becomes
close_notify; a reset becomes a cut without it. A connection that is silent for IDLE seconds is closed, as providers do. Ends
with its standard input."""
import os, select, socket, ssl, struct, sys, threading

cert, key, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
IDLE = 20
ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
ctx.load_cert_chain(cert, key)
ctx.set_alpn_protocols(["http/1.1"])


def carry(raw):
    """Both directions in one thread: an SSL object is not for two."""
    tls = plain = None
    try:
        raw.settimeout(IDLE)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = ctx.wrap_socket(raw, server_side=True, suppress_ragged_eofs=True)
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            pump(tls, plain)
        except ConnectionResetError:
            tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except (OSError, ValueError):
        pass
    finally:
        for s in (plain, tls, raw):
            if s is not None:
                s.close()


def pump(tls, plain):
    watched = [tls, plain]
    while True:
        ready = [tls] if tls in watched and tls.pending() else select.select(watched, [], [], IDLE)[0]
        if not ready:
            tls.unwrap()
            return
        if plain in ready:
            data = plain.recv(65536)
            if not data:
                tls.unwrap()
                return
            tls.sendall(data)
        if tls in ready:
            tls.settimeout(0)
            try:
                data = tls.recv(65536)
            except ssl.SSLWantReadError:
                data = None
            tls.settimeout(IDLE)
            if data:
                plain.sendall(data)
            elif data is not None:
                plain.shutdown(socket.SHUT_WR)
                watched.remove(tls)


def end_with_the_test():
    while os.read(0, 4096):
        pass
    os._exit(0)


threading.stack_size(256 * 1024)
threading.Thread(target=end_with_the_test, daemon=True).start()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", 0))
listener.listen(256)
print("port", listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=carry, args=(listener.accept()[0],), daemon=True).start()
