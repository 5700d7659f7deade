//! Refusals, in the protocol's own error body, so that an agent stops and shows the reason. What lifts a refusal is told to the
//! operator only. Called by `conn`.

use crate::catalog::providers::Protocol;
use crate::error::Exit;
use crate::limits;
use crate::relay::note::Denied;
use crate::relay::policy::Deny;
use crate::relay::serving::Serving;
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::wire::head::Writer;
use crate::wire::http::Bad;
use crate::wire::text;
use std::borrow::Cow;

/// Why a request is not served, or not served whole.
pub struct Refusal {
    /// The status the client gets.
    pub status: u16,
    /// The error type in the protocol's own words.
    pub kind: &'static str,
    /// One clause, shown to the agent.
    pub why: String,
    /// The flag that lifts it, or empty; never sent to the agent.
    pub remedy: Cow<'static, str>,
    /// Asking again is pointless.
    pub last: bool,
    /// The call has an outcome in the log, so it is no refusal of ours.
    pub recorded: bool,
    /// The whole run ends with it, for this reason.
    pub ends: Option<String>,
}

impl Refusal {
    /// A final one.
    pub fn new(status: u16, why: impl Into<String>) -> Refusal {
        Refusal {
            status,
            kind: kind(status),
            why: why.into(),
            remedy: Cow::Borrowed(""),
            last: true,
            recorded: false,
            ends: None,
        }
    }

    /// The provider could not be asked or did not answer: a client may try again.
    pub fn upstream(status: u16, why: impl Into<String>) -> Refusal {
        Refusal {
            status,
            kind: "api_error",
            why: why.into(),
            remedy: Cow::Borrowed(""),
            last: false,
            recorded: true,
            ends: None,
        }
    }
}

impl From<Bad> for Refusal {
    fn from(bad: Bad) -> Refusal {
        Refusal::new(bad.status(), bad.why())
    }
}

impl From<Deny> for Refusal {
    fn from(deny: Deny) -> Refusal {
        Refusal {
            status: deny.status,
            kind: deny.kind,
            why: deny.why,
            remedy: deny.remedy,
            last: true,
            recorded: false,
            ends: None,
        }
    }
}

/// The error type that goes with a status; both API families use these words.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 | 421 => "permission_error",
        413 => "request_too_large",
        429 | 503 => "overloaded_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    }
}

/// The error body of a protocol: `{"type":"error","error":{…}}` for Messages, `{"error":{…}}` for the OpenAI shapes.
pub fn body(protocol: Protocol, kind: &str, why: &str) -> Vec<u8> {
    let value = match protocol {
        Protocol::Messages | Protocol::CountTokens => {
            serde_json::json!({"type": "error", "error": {"type": kind, "message": why}})
        }
        Protocol::Responses | Protocol::Chat | Protocol::Plain => {
            serde_json::json!({"error": {"message": why, "type": kind, "param": null, "code": kind}})
        }
    };
    value.to_string().into_bytes()
}

/// Answers a refusal, records it, closes. `of`: method and path, empty where the head could not be read.
pub fn away(relay: &Serving, conn: &Conn, refusal: &Refusal, of: (&str, &str), scratch: &mut [u8]) {
    let answered = || send(conn, relay.provider.speaks(), refusal, of.0);
    // The end of a run is told before its agent can know, and end first, for another reason.
    let ends = refusal.ends.is_some();
    if !ends {
        answered();
    }
    let clean = |part: &&str| matches!(relay.guard.held(part.as_bytes(), &relay.body_bytes), Ok(None));
    let kept_back = ![of.0, of.1].iter().all(clean);
    let shown =
        |part: &str| if kept_back { "(kept back)".into() } else { text::short(part, limits::SHOWN_CHARS) };
    // What failed after the verdict has an outcome of its own.
    if !refusal.recorded {
        relay.denied(Denied {
            method: shown(of.0),
            path: shown(of.1),
            status: refusal.status,
            why: text::short(&refusal.why, limits::SHOWN_CHARS),
            remedy: refusal.remedy.to_string(),
        });
    }
    let stop = refusal.ends.as_ref().and_then(|why| relay.stop(why, Exit::Policy));
    if ends {
        answered();
    }
    if let Some(stop) = stop {
        relay.ended(&stop);
    }
    close(conn, scratch);
}

/// Writes the refusal; the caller closes. `to` is the method where the head could be read: an answer to HEAD has no body.
fn send(conn: &Conn, protocol: Protocol, refusal: &Refusal, to: &str) {
    let text = body(protocol, refusal.kind, &refusal.why);
    let Ok(head) = head(refusal, text.len()) else {
        return;
    };
    let text: &[u8] = if to == "HEAD" { b"" } else { &text };
    // A client that has left needs no answer.
    let _ = conn.write_all(&[&head, text], limits::REFUSED_DRAIN_TIME);
}

fn head(refusal: &Refusal, length: usize) -> Result<Vec<u8>, Bad> {
    let mut w = Writer::response(refusal.status);
    w.field("content-type", b"application/json")?;
    w.field("content-length", length.to_string().as_bytes())?;
    if refusal.status == 405 {
        w.field("allow", b"GET, POST")?;
    }
    if refusal.last {
        w.field("x-should-retry", b"false")?;
    }
    w.field("connection", b"close")?;
    Ok(w.end())
}

/// Ends a connection whose request was not read whole: FIN first, then what still comes is read and dropped, bounded; closing with
/// unread bytes would send a reset that can overtake the answer (RFC 9112 9.6).
fn close(conn: &Conn, scratch: &mut [u8]) {
    if conn.shutdown_write().is_err() {
        return;
    }
    let until = proc::monotonic().saturating_add(limits::REFUSED_DRAIN_TIME);
    let mut left = limits::REFUSED_DRAIN_BYTES;
    while left > 0 {
        let wait = until.saturating_sub(proc::monotonic());
        match conn.read(scratch, wait) {
            Ok(n) if n > 0 && !wait.is_zero() => {
                left = left.saturating_sub(u64::try_from(n).unwrap_or(u64::MAX))
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, body, head};
    use crate::catalog::providers::Protocol;

    #[test]
    fn bodies_are_the_protocols_own() {
        let text = |p| String::from_utf8_lossy(&body(p, "permission_error", "a \"b\"\n")).into_owned();
        assert_eq!(
            text(Protocol::Messages),
            r#"{"error":{"message":"a \"b\"\n","type":"permission_error"},"type":"error"}"#
        );
        assert!(text(Protocol::Chat).starts_with(r#"{"error":{"#));
        assert!(!text(Protocol::Chat).contains(r#""type":"error""#));
    }

    #[test]
    fn final_ones_say_so() {
        let text =
            |r: &Refusal| String::from_utf8_lossy(&head(r, 3).unwrap_or_default()).to_ascii_lowercase();
        let last = text(&Refusal::new(403, "x"));
        assert!(
            last.contains("x-should-retry: false\r\n") && last.contains("connection: close\r\n"),
            "{last}"
        );
        assert!(!text(&Refusal::upstream(502, "x")).contains("x-should-retry"));
    }
}
