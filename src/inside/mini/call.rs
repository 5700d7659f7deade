//! One model call of the built-in agent over plain HTTP: to the forwarder on 127.0.0.1, never further, never with TLS. Retries what
//! is worth it, within a minute; a stream that was cut is asked for once more. Called by `agent`.

use crate::error::Error;
use crate::inside::mini::agent::Speaks;
use crate::inside::mini::reply::Reply;
use crate::inside::mini::{chat, messages};
use crate::limits::{
    CONNECT_TIME, MINI_ANSWER_BYTES, MINI_ERROR_BYTES, MINI_EVENT_BYTES, MINI_RETRY_TIME, MINI_TRIES,
    UPSTREAM_IDLE,
};
use crate::sys::net::{self, Conn};
use crate::sys::proc::monotonic;
use crate::wire::body::Body;
use crate::wire::head::Writer;
use crate::wire::http;
use crate::wire::{sse, status};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Where calls go and what they carry.
pub struct Target {
    address: SocketAddr,
    authority: String,
    path: String,
    header: (&'static str, String),
}

impl Target {
    /// `base` is `http://ADDRESS:PORT[/PREFIX]`; `path` follows it.
    pub fn new(base: &str, path: &str, header: (&'static str, String)) -> Result<Target, Error> {
        let on = || format!("the model at {base:?}");
        if base.starts_with("https:") {
            return Err(Error::wrong("reach", on(), "mini has no TLS")
                .remedy("use --mode sealed or key-safe, where the relay speaks it, or another agent"));
        }
        let rest =
            base.strip_prefix("http://").ok_or_else(|| Error::wrong("reach", on(), "it is no http URL"))?;
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address =
            authority.parse().map_err(|_| Error::wrong("reach", on(), "its host is not ADDRESS:PORT"))?;
        let path = format!("{}{path}", prefix.trim_end_matches('/'));
        Ok(Target { address, authority: authority.to_string(), path, header })
    }
}

/// Why a call gave no answer.
pub enum Failure {
    /// Final: the provider or the relay will not have it. Status and words.
    Refused(u16, String),
    /// The stream ended before the answer did, twice.
    Cut(String),
    /// Everything else.
    Error(String),
}

impl Failure {
    /// The answer held neither text nor a tool call.
    pub fn empty() -> Failure {
        Failure::Error("the model ended without having said anything".into())
    }

    /// The provider ended it for a reason that is no good end.
    pub fn stopped(reason: &str) -> Failure {
        Failure::Error(format!("the provider ended the answer: {reason}"))
    }

    /// One answer after the other ran into the cap.
    pub fn capped() -> Failure {
        Failure::Error("the answers kept ending at the token cap".into())
    }

    /// Its word in the result line.
    pub fn word(&self) -> &'static str {
        match self {
            Failure::Refused(..) => "refused",
            Failure::Cut(_) => "cut",
            Failure::Error(_) => "error",
        }
    }

    /// One clause.
    pub fn why(&self) -> String {
        match self {
            Failure::Refused(status, why) => format!("the model call was refused ({status}): {why}"),
            Failure::Cut(why) => format!("the model's answer was cut: {why}"),
            Failure::Error(why) => why.clone(),
        }
    }
}

/// One try.
enum Tried {
    Final(Failure),
    /// Not now: the wait the server asked for, and why.
    Later(Option<Duration>, String),
    /// It began and was cut.
    Cut(String),
}

/// Asks until there is a whole answer or a reason to stop. `retrying` is told each reason to ask again.
pub fn ask(
    target: &Target,
    speaks: Speaks,
    body: &str,
    retrying: &mut dyn FnMut(&str),
) -> Result<Reply, Failure> {
    let give_up = monotonic().saturating_add(MINI_RETRY_TIME);
    let mut pause = Duration::from_secs(1);
    let mut cut = false;
    for left in (0..MINI_TRIES).rev() {
        let (asked, why) = match once(target, speaks, body) {
            Ok(reply) => return Ok(reply),
            Err(Tried::Final(failure)) => return Err(failure),
            Err(Tried::Cut(why)) if cut => return Err(Failure::Cut(why)),
            Err(Tried::Cut(why)) => {
                cut = true;
                (Some(Duration::ZERO), why)
            }
            Err(Tried::Later(asked, why)) => (asked, why),
        };
        let wait = asked.unwrap_or(pause);
        if left == 0 || monotonic().saturating_add(wait) > give_up {
            return Err(if cut { Failure::Cut(why) } else { Failure::Error(format!("gave up: {why}")) });
        }
        retrying(&why);
        std::thread::sleep(wait);
        pause = pause.saturating_mul(2);
    }
    Err(Failure::Error("gave up".into()))
}

fn once(target: &Target, speaks: Speaks, body: &str) -> Result<Reply, Tried> {
    #[expect(clippy::disallowed_methods, reason = "NET-70 mini to the forwarder on 127.0.0.1")]
    let conn = net::connect_tcp(target.address, CONNECT_TIME);
    let conn = conn.map_err(|e| Tried::Later(None, format!("cannot reach {}: {e}", target.address)))?;
    let head =
        head(target, speaks, body.len()).map_err(|bad| Tried::Final(Failure::Error(bad.why().into())))?;
    // A server that answers before it has read all has refused; what it says is read below.
    let sent = conn.send(&[&head, body.as_bytes()], UPSTREAM_IDLE);
    sent.map_err(|e| Tried::Cut(format!("the request was not taken: {e}")))?;
    answer(&conn, speaks)
}

fn head(target: &Target, speaks: Speaks, length: usize) -> Result<Vec<u8>, http::Bad> {
    let mut w = Writer::request("POST", &target.path)?;
    w.field("host", target.authority.as_bytes())?;
    w.field("user-agent", concat!("sanduk-mini/", env!("CARGO_PKG_VERSION")).as_bytes())?;
    w.field(target.header.0, target.header.1.as_bytes())?;
    if speaks == Speaks::Messages {
        w.field("anthropic-version", b"2023-06-01")?;
    }
    w.field("content-type", b"application/json")?;
    w.field("accept", b"text/event-stream")?;
    w.field("accept-encoding", b"identity")?;
    w.field("connection", b"close")?;
    w.field("content-length", length.to_string().as_bytes())?;
    Ok(w.end())
}

/// What of a head matters here.
struct Head {
    status: u16,
    framing: http::Framing,
    stream: bool,
    encoded: bool,
    final_: bool,
    wait: Option<Duration>,
}

fn answer(conn: &Conn, speaks: Speaks) -> Result<Reply, Tried> {
    let mut held = Vec::new();
    let head = loop {
        let read =
            http::response(&held, "POST").map_err(|bad| Tried::Final(Failure::Error(bad.why().into())))?;
        match read {
            Some((response, used)) if response.status < 200 => drop(held.drain(..used)),
            Some((response, used)) => {
                let head = seen(&response);
                held.drain(..used);
                break head;
            }
            None => {
                if more(conn, &mut held).map_err(|e| Tried::Cut(e.to_string()))? == 0 {
                    return Err(Tried::Cut("the connection closed before the answer began".into()));
                }
            }
        }
    };
    if head.encoded {
        return Err(Tried::Final(Failure::Error("the answer is compressed, which was not asked for".into())));
    }
    if head.status != 200 {
        return Err(refused(conn, &head, held));
    }
    if !head.stream {
        return Err(Tried::Final(Failure::Error("the answer is not an event stream".into())));
    }
    stream(conn, head.framing, held, speaks)
}

fn seen(response: &http::Response<'_>) -> Head {
    let text = |name: &str| {
        http::one(&response.fields, name)
            .ok()
            .flatten()
            .map_or(String::new(), |v| String::from_utf8_lossy(v).to_ascii_lowercase())
    };
    Head {
        status: response.status,
        framing: response.framing,
        stream: text("content-type").starts_with("text/event-stream"),
        encoded: !matches!(text("content-encoding").as_str(), "" | "identity"),
        final_: text("x-should-retry") == "false",
        wait: text("retry-after").parse().ok().map(Duration::from_secs),
    }
}

fn more(conn: &Conn, held: &mut Vec<u8>) -> io::Result<usize> {
    let mut buf = [0u8; 16 * 1024];
    let n = conn.read(&mut buf, UPSTREAM_IDLE)?;
    held.extend(buf.iter().take(n));
    Ok(n)
}

/// Feeds the body to `each`; `Err` where it was cut.
fn body(
    conn: &Conn,
    framing: http::Framing,
    mut held: Vec<u8>,
    most: u64,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), String> {
    let mut body = Body::new(framing, most).map_err(|bad| bad.why().to_string())?;
    loop {
        let mut rest = held.as_slice();
        while !body.done() {
            let (used, piece) = body.next(rest).map_err(|bad| bad.why().to_string())?;
            if used == 0 {
                break;
            }
            each(piece);
            rest = rest.get(used..).unwrap_or_default();
        }
        held = rest.to_vec();
        if body.done() {
            return Ok(());
        }
        if more(conn, &mut held).map_err(|e| e.to_string())? == 0 {
            return if body.closed() {
                Ok(())
            } else {
                Err("the connection closed in the middle of it".into())
            };
        }
    }
}

/// Reads the words of an error answer and decides whether to come back.
fn refused(conn: &Conn, head: &Head, held: Vec<u8>) -> Tried {
    let mut text = Vec::new();
    // Cut or not, what came is what can be shown.
    let _ = body(conn, head.framing, held, MINI_ERROR_BYTES, &mut |piece| text.extend_from_slice(piece));
    let said: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
    let why = said["error"]["message"]
        .as_str()
        .map_or_else(|| String::from_utf8_lossy(&text).trim().to_string(), str::to_string);
    let why = if why.is_empty() { status::reason(head.status).to_string() } else { why };
    match head.status {
        429 | 500 | 502..=504 | 529 if !head.final_ => {
            Tried::Later(head.wait, format!("{}: {why}", head.status))
        }
        status => Tried::Final(Failure::Refused(status, why)),
    }
}

/// A protocol's stream under way.
enum Under {
    Messages(messages::Stream),
    Chat(chat::Stream),
}

fn stream(conn: &Conn, framing: http::Framing, held: Vec<u8>, speaks: Speaks) -> Result<Reply, Tried> {
    let mut under = match speaks {
        Speaks::Messages => Under::Messages(messages::Stream::default()),
        Speaks::Chat => Under::Chat(chat::Stream::default()),
    };
    let mut reader = sse::Reader::new(MINI_EVENT_BYTES);
    let mut error = None;
    let mut each = |_: &str, data: &[u8]| {
        // `[DONE]` and whatever else is no JSON says nothing.
        let Ok(data) = serde_json::from_slice::<Value>(data) else { return };
        let took = match &mut under {
            Under::Messages(stream) => stream.event(&data),
            Under::Chat(stream) => stream.event(&data),
        };
        error = error.take().or(took.err());
    };
    let ended = body(conn, framing, held, MINI_ANSWER_BYTES, &mut |piece| reader.push(piece, &mut each));
    reader.finish(&mut each);
    ended.map_err(Tried::Cut)?;
    if let Some(why) = error {
        return Err(Tried::Cut(format!("the provider broke off: {why}")));
    }
    if reader.skipped() > 0 {
        return Err(Tried::Final(Failure::Error("an event of the answer is too long".into())));
    }
    let whole = match under {
        Under::Messages(stream) => stream.whole(),
        Under::Chat(stream) => stream.whole(),
    };
    whole.ok_or_else(|| Tried::Cut("it ended before its last event".into()))
}
