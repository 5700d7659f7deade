//! A CONNECT proxy that opens tunnels to one place, refuses, or says nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What it was asked, a head each.
pub type Asked = Arc<Mutex<Vec<String>>>;

/// Answers each CONNECT with what `answer` makes of its head, or never; a 200 is followed by a tunnel to the port `to` of this host.
pub fn proxy(
    answer: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static,
    to: &str,
) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, to) = (Asked::default(), format!("127.0.0.1:{to}"));
    let (heads, answer) = (Arc::clone(&asked), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, to) = (stream.unwrap(), to.clone());
            let (heads, answer) = (Arc::clone(&heads), Arc::clone(&answer));
            std::thread::spawn(move || {
                let head = head(&mut stream);
                heads.lock().unwrap().push(head.clone());
                let Some(answer) = answer(&head) else { return drop(stream.read_to_end(&mut Vec::new())) };
                stream.write_all(format!("HTTP/1.0 {answer}\r\n\r\n").as_bytes()).unwrap();
                if answer.starts_with("200") {
                    tunnel(stream, TcpStream::connect(to).unwrap());
                }
            });
        }
    });
    (address, asked)
}

/// A byte at a time: what follows belongs to the tunnel.
fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn tunnel(client: TcpStream, server: TcpStream) {
    let (mut up_from, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut up_from, &mut up_to);
        let _ = up_to.shutdown(std::net::Shutdown::Write);
    });
    let (mut server, mut client) = (server, client);
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Write);
}
