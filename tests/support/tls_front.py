#!/usr/bin/env python3
"""TLS before a plain server: tls_front.py CERT.pem KEY.pem HOST PORT. Prints the port it listens on, then passes bytes both ways."""
import socket, ssl, sys, threading

cert, key, host, port = sys.argv[1:5]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
context.set_alpn_protocols(["http/1.1"])


def copy(a, b, last):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        last()
    except OSError:
        pass


def serve(raw):
    try:
        client = context.wrap_socket(raw, server_side=True)
    except OSError:
        return
    server = socket.create_connection((host, int(port)))
    threading.Thread(target=copy, args=(client, server, lambda: server.shutdown(socket.SHUT_WR)), daemon=True).start()
    copy(server, client, lambda: client.unwrap())
    client.close()


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
