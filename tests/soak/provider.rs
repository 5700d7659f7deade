//! The provider of the soak: answers as the request's model says, well or badly.

use flate2::{Compression, write::GzEncoder};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// What a client can ask for by the name of its model, and what must come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A whole answer with this status and so many body bytes.
    Whole(u16, usize),
    /// No whole answer: cut, or an error of the relay's own (502, 504).
    Broken,
    /// Either: depends on who was faster.
    Any,
}

/// Bytes of the large answer.
pub const BIG: usize = 1_500_000;
const USAGE: &str = r#"{"type":"message","content":[],"usage":{"input_tokens":11,"output_tokens":4}}"#;
const EVENTS: usize = 12;
const EVENT: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word\"}}\n\n";

/// Every model the provider knows.
pub const MODELS: [(&str, Want); 19] = [
    ("plain", Want::Whole(200, USAGE.len())),
    ("sse", Want::Whole(200, EVENTS * EVENT.len())),
    ("big", Want::Whole(200, BIG)),
    ("close", Want::Whole(200, USAGE.len())),
    ("gzip", Want::Any),
    ("interim", Want::Whole(200, USAGE.len())),
    ("slow-head", Want::Whole(200, USAGE.len())),
    ("dribble", Want::Whole(200, USAGE.len())),
    ("429", Want::Any),
    ("503", Want::Any),
    ("529", Want::Any),
    ("401", Want::Any),
    ("cut-length", Want::Broken),
    ("cut-chunk", Want::Broken),
    ("reset", Want::Broken),
    ("stall", Want::Broken),
    ("silent", Want::Broken),
    ("garbage", Want::Broken),
    ("early", Want::Any),
];

/// Serves until the process ends.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let serving = move || {
                let _ = serve(&stream);
            };
            // A machine that has no thread to spare gives a closed connection, which is a fault like the others.
            let _ = std::thread::Builder::new().name("provider".into()).spawn(serving);
        }
    });
    address
}

fn serve(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let from = head.len();
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
            if let Some(n) = head[from..].to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length.min(4096)];
        reader.read_exact(&mut body)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let model = text.split(r#""model":""#).nth(1).and_then(|t| t.split('"').next()).unwrap_or("plain");
        if model == "early" {
            return { stream }
                .write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let rest = u64::try_from(length - body.len()).unwrap();
        std::io::copy(&mut (&mut reader).take(rest), &mut std::io::sink())?;
        if !answer(stream, model)? {
            return Ok(());
        }
    }
}

fn whole(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}

fn gzipped() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(USAGE.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// False: the connection is to be closed.
fn answer(mut to: &TcpStream, model: &str) -> std::io::Result<bool> {
    const JSON: &str = "Content-Type: application/json\r\n";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    match model {
        "sse" => {
            to.write_all(CHUNKED.as_bytes())?;
            for _ in 0..EVENTS {
                to.write_all(format!("{:x}\r\n{EVENT}\r\n", EVENT.len()).as_bytes())?;
                pause(2);
            }
            to.write_all(b"0\r\n\r\n")?;
        }
        "big" => to.write_all(&whole("200 OK", JSON, &vec![b'x'; BIG]))?,
        "close" => {
            to.write_all(format!("HTTP/1.1 200 OK\r\n{JSON}\r\n{USAGE}").as_bytes())?;
            return Ok(false);
        }
        "gzip" => to.write_all(&whole("200 OK", &format!("{JSON}Content-Encoding: gzip\r\n"), &gzipped()))?,
        "interim" => {
            to.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")?;
            to.write_all(&whole("200 OK", JSON, USAGE.as_bytes()))?;
        }
        "slow-head" => {
            for piece in whole("200 OK", JSON, USAGE.as_bytes()).chunks(16) {
                to.write_all(piece)?;
                pause(10);
            }
        }
        "dribble" => {
            to.write_all(CHUNKED.as_bytes())?;
            for byte in USAGE.bytes() {
                to.write_all(&[b'1', b'\r', b'\n', byte, b'\r', b'\n'])?;
            }
            to.write_all(b"0\r\n\r\n")?;
        }
        "429" | "503" | "529" | "401" => {
            let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
            to.write_all(&whole(&format!("{model} No"), &format!("{JSON}Retry-After: 0\r\n"), body))?;
        }
        "cut-length" => {
            to.write_all(format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: 9000\r\n\r\n{USAGE}").as_bytes())?;
            return Ok(false);
        }
        "cut-chunk" => {
            to.write_all(format!("{CHUNKED}5\r\nhello\r\n").as_bytes())?;
            return Ok(false);
        }
        "reset" => {
            to.write_all(format!("{CHUNKED}5\r\nhello\r\n").as_bytes())?;
            pause(20);
            rustix::net::sockopt::set_socket_linger(to, Some(Duration::ZERO))?;
            return Ok(false);
        }
        "stall" => {
            to.write_all(format!("{CHUNKED}5\r\nhello\r\n").as_bytes())?;
            pause(1500);
            return Ok(false);
        }
        "silent" => return Ok(false),
        "garbage" => {
            to.write_all(b"SSH-2.0-OpenSSH_9.9\r\n")?;
            return Ok(false);
        }
        _ => to.write_all(&whole("200 OK", JSON, USAGE.as_bytes()))?,
    }
    Ok(true)
}
