//! The scripted provider itself: a thread per connection, keep-alive, hand-written reading (it must not depend on the code under
//! test). Serves `POST …/v1/messages`, `…/v1/messages/count_tokens`, `…/v1/responses`, `…/v1/chat/completions` (streamed where
//! the body says `"stream":true`), `GET …/v1/models` and `…/v1/key`, `HEAD /api/hello`; all else is 404.
//!
//! A script is JSON:
//! ```text
//! { "key": "K",             only this key (x-api-key or Bearer) is let in; left out: any
//!   "order": "arrival",     each reply is used up by one call (default); "turn": reply N answers a request that holds N
//!                           assistant turns, so that any number of conversations may run, also at once
//!   "end": "error",         when the replies are used up: 500 (default); "last": the last one for ever
//!   "replies": [ REPLY… ] }
//! REPLY, every member optional:
//!   "for": "messages|responses|chat"   only for this protocol
//!   "times": 3                          used so many times
//!   "text": "…"   "tools": [{"name":"bash","input":{…}}]   or {"name":…,"raw":"not JSON"}   text comes first
//!                 `{last}` in text and tool input becomes the text of the last tool result of the request
//!   "usage": {"input":10,"output":5,"cache_read":0,"cache_write":0,"reasoning":0}   cache and reasoning as subsets the way
//!                 the protocol says; input is without cache. "usage": null leaves it out
//!   "cost": 0.01        usage.cost (Chat Completions and Responses, as OpenRouter does)
//!   "stop": "length"    the answer hit the token cap; another word is given as the reason as it is
//!   "status": 429, "headers": [["retry-after","1"]], "body": "…"   an error; without "body" the protocol's own error object
//!   "message": "…"      the message of that error object
//!   "raw": "HTTP/1.1 …" these bytes instead of an answer, then close
//!   "interim": [103]    1xx heads first
//!   "gzip": true        content-encoding gzip, flushed per event
//!   "framing": "chunked|length|close"   default: chunked where streamed, else length
//!   "cut": 120          close after so many body bytes (in the middle of a chunk where it falls so)
//!   "cut_events": 2     close after so many events, between two chunks, without the last chunk; 99: after all of them
//!   "first_ms": 0, "delay_ms": 0        wait before the head, and before each event after the first
//!   "hang": true        the head, then nothing for ten minutes
//! ```
//! A recorded line: `{"n","connection","method","target","headers":[[name,value]],"body":text}`; a body that is not UTF-8 is
//! `"body_hex"` instead. It is written before the answer starts.

#[path = "shapes.rs"]
mod shapes;

use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Largest head and body taken.
const HEAD: usize = 256 * 1024;
const BODY: usize = 128 * 1024 * 1024;
/// A connection may be silent for so long.
const IDLE: Duration = Duration::from_secs(600);
/// Connections at a time.
const CONNECTIONS: usize = 1024;

/// Takes each recorded line.
pub type Record = Box<dyn FnMut(&str) + Send>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    key: Option<String>,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    end: End,
    replies: Vec<Reply>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Arrival,
    Turn,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum End {
    #[default]
    Error,
    Last,
}

/// What a call speaks.
#[derive(Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Speaks {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields, default)]
struct Reply {
    #[serde(rename = "for")]
    speaks: Option<Speaks>,
    times: usize,
    text: Option<String>,
    tools: Vec<Tool>,
    usage: Option<Usage>,
    cost: Option<f64>,
    stop: Option<String>,
    status: u16,
    headers: Vec<(String, String)>,
    body: Option<String>,
    message: Option<String>,
    raw: Option<String>,
    interim: Vec<u16>,
    gzip: bool,
    framing: Option<String>,
    cut: Option<usize>,
    cut_events: Option<usize>,
    first_ms: u64,
    delay_ms: u64,
    hang: bool,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply {
            speaks: None,
            times: 1,
            text: None,
            tools: Vec::new(),
            usage: Some(Usage::default()),
            cost: None,
            stop: None,
            status: 200,
            headers: Vec::new(),
            body: None,
            message: None,
            raw: None,
            interim: Vec::new(),
            gzip: false,
            framing: None,
            cut: None,
            cut_events: None,
            first_ms: 0,
            delay_ms: 0,
            hang: false,
        }
    }
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    input: Option<Value>,
    raw: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, default)]
struct Usage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage { input: 100, output: 20, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

struct State {
    script: Script,
    record: Record,
    calls: u64,
    connections: usize,
}

/// A script of `tests/support/script/` by its name.
pub fn named(name: &str) -> Option<&'static str> {
    match name {
        "demo" => Some(include_str!("script/demo.json")),
        "text" => Some(include_str!("script/text.json")),
        "loop" => Some(include_str!("script/loop.json")),
        _ => None,
    }
}

/// Starts serving on `listen`; the threads live as long as the process.
pub fn start(listen: &str, script: &str, record: Record) -> Result<SocketAddr, String> {
    let script: Script = serde_json::from_str(script).map_err(|e| format!("script: {e}"))?;
    let listener = TcpListener::bind(listen).map_err(|e| format!("{listen}: {e}"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let state = Arc::new(Mutex::new(State { script, record, calls: 0, connections: 0 }));
    std::thread::spawn(move || {
        for (id, stream) in listener.incoming().enumerate() {
            let (Ok(stream), state) = (stream, Arc::clone(&state)) else { continue };
            if lock(&state).connections >= CONNECTIONS {
                continue;
            }
            lock(&state).connections += 1;
            std::thread::spawn(move || {
                let _ = connection(&stream, &state, id);
                lock(&state).connections -= 1;
            });
        }
    });
    Ok(address)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Call {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

fn connection(mut stream: &TcpStream, state: &Mutex<State>, id: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut held = Vec::new();
    while let Some(call) = read_call(&mut stream, &mut held)? {
        let n = {
            let mut state = lock(state);
            state.calls += 1;
            state.calls
        };
        let mut line = json!({"n": n, "connection": id, "method": call.method, "target": call.target, "headers": call.headers});
        match std::str::from_utf8(&call.body) {
            Ok(text) => line["body"] = json!(text),
            Err(_) => {
                line["body_hex"] = json!(call.body.iter().map(|b| format!("{b:02x}")).collect::<String>())
            }
        }
        (lock(state).record)(&line.to_string());
        if !answer(stream, state, &call)? {
            return Ok(());
        }
    }
    Ok(())
}

/// The next request; `None` at the end of the stream. `held` keeps what was read too far.
fn read_call(stream: &mut &TcpStream, held: &mut Vec<u8>) -> io::Result<Option<Call>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let end = loop {
        if let Some(at) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if held.len() > HEAD {
            return Err(bad("head too long"));
        }
        if more(stream, held)? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&held[..end]).into_owned();
    held.drain(..end);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or("").split(' ');
    let (method, target) = (first.next().unwrap_or("").to_string(), first.next().unwrap_or("").to_string());
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_string(), v.trim().to_string())).collect();
    let mut call = Call { method, target, headers, body: Vec::new() };
    if call.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if call.header("transfer-encoding").is_some() {
        loop {
            let line = take_line(stream, held)?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16);
            let size = size.map_err(|_| bad("chunk size"))?;
            if size == 0 {
                while !take_line(stream, held)?.is_empty() {}
                break;
            }
            call.body.extend(take(stream, held, size)?);
            take(stream, held, 2)?;
            if call.body.len() > BODY {
                return Err(bad("body too long"));
            }
        }
    } else if let Some(length) = call.header("content-length") {
        let length: usize = length.parse().map_err(|_| bad("length"))?;
        if length > BODY {
            return Err(bad("body too long"));
        }
        call.body = take(stream, held, length)?;
    }
    Ok(Some(call))
}

fn more(stream: &mut &TcpStream, held: &mut Vec<u8>) -> io::Result<usize> {
    let mut buf = [0u8; 64 * 1024];
    let n = stream.read(&mut buf)?;
    held.extend_from_slice(&buf[..n]);
    Ok(n)
}

fn take(stream: &mut &TcpStream, held: &mut Vec<u8>, n: usize) -> io::Result<Vec<u8>> {
    while held.len() < n {
        if more(stream, held)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(held.drain(..n).collect())
}

fn take_line(stream: &mut &TcpStream, held: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(at) = held.windows(2).position(|w| w == b"\r\n") {
            let line: Vec<u8> = held.drain(..at + 2).take(at).collect();
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        if held.len() > HEAD || more(stream, held)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Answers one call; `false`: the connection is over.
fn answer(stream: &TcpStream, state: &Mutex<State>, call: &Call) -> io::Result<bool> {
    let path = call.target.split('?').next().unwrap_or("");
    let speaks = match call.method.as_str() {
        "POST" if path.ends_with("/v1/messages") => Some(Speaks::Messages),
        "POST" if path.ends_with("/v1/responses") => Some(Speaks::Responses),
        "POST" if path.ends_with("/v1/chat/completions") => Some(Speaks::Chat),
        _ => None,
    };
    let wanted = lock(state).script.key.clone();
    let bearer = call.header("authorization").and_then(|v| v.strip_prefix("Bearer "));
    let given = call.header("x-api-key").or(bearer);
    if path != "/api/hello" && wanted.is_some() && wanted.as_deref() != given {
        let body = shapes::error(speaks.unwrap_or(Speaks::Messages), 401, "invalid x-api-key");
        return plain(stream, 401, &body.to_string());
    }
    let Some(speaks) = speaks else {
        let body = match (call.method.as_str(), path) {
            ("HEAD", "/api/hello") => {
                return plain(stream, 200, "").map(|_| true);
            }
            ("GET", p) if p.ends_with("/v1/models") => json!({"data": [{"type": "model", "id": "scripted-1",
                "display_name": "Scripted 1", "created_at": "2026-01-01T00:00:00Z"}], "has_more": false,
                "first_id": "scripted-1", "last_id": "scripted-1", "object": "list"}),
            ("GET", p) if p.ends_with("/v1/key") => {
                json!({"data": {"label": "scripted", "usage": 0, "limit": null}})
            }
            ("POST", p) if p.ends_with("/v1/messages/count_tokens") => {
                json!({"input_tokens": call.body.len() / 4})
            }
            _ => {
                return plain(
                    stream,
                    404,
                    &shapes::error(Speaks::Messages, 404, "no such route").to_string(),
                );
            }
        };
        return plain(stream, 200, &body.to_string());
    };
    let request: Value = serde_json::from_slice(&call.body).unwrap_or(Value::Null);
    if !request.is_object() {
        return plain(stream, 400, &shapes::error(speaks, 400, "the body is not a JSON object").to_string());
    }
    let Some(mut reply) = pick(&mut lock(state).script, speaks, &request) else {
        return plain(
            stream,
            500,
            &shapes::error(speaks, 500, "the script has no further reply").to_string(),
        );
    };
    shapes::fill(&mut reply, &shapes::last_result(&request));
    send(stream, speaks, &request, &reply)
}

fn pick(script: &mut Script, speaks: Speaks, request: &Value) -> Option<Reply> {
    let fits = |r: &Reply| r.speaks.is_none_or(|s| s == speaks);
    let last = script.replies.iter().rev().find(|r| fits(r)).cloned();
    let next = match script.order {
        Order::Turn => script.replies.iter().filter(|r| fits(r)).nth(shapes::turns(request)).cloned(),
        Order::Arrival => script.replies.iter_mut().find(|r| fits(r) && r.times > 0).map(|r| {
            r.times -= 1;
            r.clone()
        }),
    };
    next.or(if script.end == End::Last { last } else { None })
}

fn plain(mut stream: &TcpStream, status: u16, body: &str) -> io::Result<bool> {
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nrequest-id: req_scripted\r\n\r\n",
        reason(status),
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    Ok(true)
}

fn reason(status: u16) -> &'static str {
    match status {
        100..=199 => "Interim",
        200..=299 => "OK",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        _ => "Error",
    }
}

fn send(mut stream: &TcpStream, speaks: Speaks, request: &Value, reply: &Reply) -> io::Result<bool> {
    std::thread::sleep(Duration::from_millis(reply.first_ms));
    if let Some(raw) = &reply.raw {
        stream.write_all(raw.as_bytes())?;
        return Ok(false);
    }
    for status in &reply.interim {
        stream
            .write_all(format!("HTTP/1.1 {status} Interim\r\nlink: </x>; rel=preload\r\n\r\n").as_bytes())?;
    }
    let ok = reply.status == 200;
    let streamed = ok && reply.body.is_none() && request["stream"] == json!(true);
    let mut pieces: Vec<Vec<u8>> = if let Some(body) = &reply.body {
        vec![body.clone().into_bytes()]
    } else if !ok {
        let message = reply.message.as_deref().unwrap_or("scripted error");
        vec![shapes::error(speaks, reply.status, message).to_string().into_bytes()]
    } else if streamed {
        shapes::events(speaks, request, reply).into_iter().map(String::into_bytes).collect()
    } else {
        vec![shapes::whole(speaks, request, reply).to_string().into_bytes()]
    };
    if reply.gzip {
        pieces = zipped(&pieces)?;
    }
    let framing = reply.framing.as_deref().unwrap_or(if streamed { "chunked" } else { "length" });
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    head.push_str(if streamed {
        "content-type: text/event-stream\r\n"
    } else {
        "content-type: application/json\r\n"
    });
    head.push_str("request-id: req_scripted\r\n");
    match framing {
        "chunked" => head.push_str("transfer-encoding: chunked\r\n"),
        "length" => {
            head.push_str(&format!("content-length: {}\r\n", pieces.iter().map(Vec::len).sum::<usize>()))
        }
        _ => head.push_str("connection: close\r\n"),
    }
    if reply.gzip {
        head.push_str("content-encoding: gzip\r\n");
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if reply.hang {
        std::thread::sleep(IDLE);
        return Ok(false);
    }
    body(stream, &pieces, framing == "chunked", reply).map(|whole| whole && framing != "close")
}

/// Writes the pieces; `false` where the script cuts them.
fn body(mut stream: &TcpStream, pieces: &[Vec<u8>], chunked: bool, reply: &Reply) -> io::Result<bool> {
    let mut left = reply.cut.unwrap_or(usize::MAX);
    for (i, piece) in pieces.iter().enumerate() {
        if reply.cut_events.is_some_and(|most| i >= most) {
            return Ok(false);
        }
        if i > 0 {
            std::thread::sleep(Duration::from_millis(reply.delay_ms));
        }
        let mut out = Vec::new();
        if chunked {
            out.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        }
        out.extend_from_slice(&piece[..piece.len().min(left)]);
        if left < piece.len() {
            stream.write_all(&out)?;
            return Ok(false);
        }
        left -= piece.len();
        if chunked {
            out.extend_from_slice(b"\r\n");
        }
        stream.write_all(&out)?;
    }
    if reply.cut_events.is_some() {
        return Ok(false);
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(true)
}

/// One gzip member over all pieces, each of them flushed, so that a reader can follow event by event.
fn zipped(pieces: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut out = Vec::new();
    for piece in pieces {
        encoder.write_all(piece)?;
        encoder.flush()?;
        out.push(std::mem::take(encoder.get_mut()));
    }
    let tail = encoder.finish()?;
    match out.last_mut() {
        Some(last) => last.extend(tail),
        None => out.push(tail),
    }
    Ok(out)
}
