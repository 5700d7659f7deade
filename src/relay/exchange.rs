//! One request to the provider and the head of its answer: which connection, when to try again, which answers are none. Called by
//! `conn` and `preflight`. Never reads more than one answer from a connection.

use crate::limits;
use crate::relay::pool::{Link, Pool};
use crate::sys::proc;
use crate::wire::http;
use std::io;
use std::time::Duration;

/// A connection with an answer on it. The answer's head is `buf[start..]`; `filled` is where the bytes read so far end.
pub struct Answer {
    /// Where it came from.
    pub link: Link,
    /// Of its head.
    pub status: u16,
    /// Where the final head begins; interim answers stand before it.
    pub start: usize,
    /// Bytes in the buffer.
    pub filled: usize,
    /// It was asked for several times here, and is an overload still; or it says that a quota is used up.
    pub given_up: bool,
    /// The whole request was sent, so the connection may serve again.
    pub sent_whole: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failed {
    /// No connection: nothing was sent.
    Unreachable(io::Error),
    /// Sent, and no byte came in time.
    Silent,
    /// Sent, and what came, or did not come, is no answer.
    Broken(String),
}

/// Asks once, or twice where a kept connection turns out to have been closed before the first byte of an answer. A fresh connection that
/// died silent is never tried again: the call may have been billed. `wait` bounds the silence before a head, `UPSTREAM_HEAD_TIME` the whole of it.
pub fn ask(
    pool: &Pool,
    parts: &[&[u8]],
    method: &str,
    buf: &mut [u8],
    wait: Duration,
) -> Result<Answer, Failed> {
    if let Some(link) = pool.take() {
        match once(link, parts, method, buf, wait) {
            Err(Lost::Unanswered(_)) => {}
            other => return other.map_err(Failed::from),
        }
    }
    let link = pool.dial().map_err(Failed::Unreachable)?;
    once(link, parts, method, buf, wait).map_err(Failed::from)
}

/// How one try ended without an answer.
enum Lost {
    /// The connection was closed before a byte of an answer.
    Unanswered(String),
    /// Anything else.
    Other(Failed),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Failed {
        match lost {
            Lost::Unanswered(why) => Failed::Broken(why),
            Lost::Other(failed) => failed,
        }
    }
}

fn once(
    mut link: Link,
    parts: &[&[u8]],
    method: &str,
    buf: &mut [u8],
    wait: Duration,
) -> Result<Answer, Lost> {
    let sent = link.send(parts, wait);
    // A server that refuses early may have closed its reading side; its answer is read all the same.
    let sent_whole = matches!(sent, Ok(true));
    let wait = if sent.is_err() { limits::REFUSED_DRAIN_TIME } else { wait };
    let (mut start, mut filled, mut interim) = (0usize, 0usize, 0usize);
    // When the head that has begun must be whole. What comes behind an interim one may take its time again.
    let mut whole_by = None;
    loop {
        match http::response(buf.get(start..filled).unwrap_or_default(), method) {
            Ok(Some((head, used))) if (100..200).contains(&head.status) => {
                interim = interim.saturating_add(1);
                if head.status == 101 || interim > limits::INTERIM_ANSWERS {
                    return Err(broken("it answered with an upgrade or with too many interim answers"));
                }
                start = start.saturating_add(used);
                whole_by = None;
                continue;
            }
            Ok(Some((head, _))) => {
                return Ok(Answer { link, status: head.status, start, filled, given_up: false, sent_whole });
            }
            Ok(None) => {}
            Err(bad) => return Err(broken(bad.why())),
        }
        let Some(space) = buf.get_mut(filled..).filter(|s| !s.is_empty()) else {
            return Err(broken("the head of its answer is too long"));
        };
        let begun = filled > start;
        let left = if begun {
            let now = proc::monotonic();
            let by = whole_by.get_or_insert_with(|| now.saturating_add(limits::UPSTREAM_HEAD_TIME));
            wait.min(by.saturating_sub(now))
        } else {
            wait
        };
        match link.read(space, left) {
            Ok(0) if filled == 0 => {
                let why = sent.err().map_or_else(|| "it closed without an answer".into(), |e| e.to_string());
                return Err(Lost::Unanswered(why));
            }
            Ok(0) => return Err(broken("it closed within the head of its answer")),
            Ok(n) => filled = filled.saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::TimedOut && begun => {
                return Err(broken("the head of its answer comes too slowly"));
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(Lost::Other(Failed::Silent)),
            Err(e) if filled == 0 => return Err(Lost::Unanswered(e.to_string())),
            Err(e) => return Err(broken(&e.to_string())),
        }
    }
}

fn broken(why: &str) -> Lost {
    Lost::Other(Failed::Broken(why.into()))
}
