//! Asks a provider again that is overloaded (429, 503, 529), as `--retry-for` allows, while nothing of an answer has gone to the client.
//! Agents by themselves give up within two seconds, or burn minutes. Each further try is recorded before it is made. The answer in hand is
//! kept until then, so that the client always gets the last one. Called by `conn`.

use crate::limits;
use crate::relay::exchange::{self, Answer, Failed};
use crate::relay::inflate::Inflater;
use crate::relay::note::{Again, Note};
use crate::relay::record::Retry;
use crate::relay::serving::Serving;
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::wire::body::Body;
use crate::wire::http::{self, Field, Framing};
use std::time::Duration;

/// What overloaded providers answer: by the RFCs, and by Anthropic.
const OVERLOADS: [u16; 3] = [429, 503, 529];

/// Who asks.
pub struct Asker<'a> {
    /// The relay.
    pub relay: &'a Serving,
    /// The client, who may leave meanwhile.
    pub client: &'a Conn,
    /// The call's number in the log.
    pub call: u64,
    /// Its method.
    pub method: &'a str,
}

/// As `exchange::ask`. An answer is handed on as it is where it is no overload, where the provider says that
/// asking again is pointless (a header, or a quota that is used up), where its time is too long for us, where the time is up, and where the client shows that it
/// sends no more: that one has mostly left, and one that waits gets the answer that there is.
pub fn ask(asker: &Asker<'_>, parts: &[&[u8]], buf: &mut [u8]) -> Result<Answer, Failed> {
    let relay = asker.relay;
    let mut tries = 1u32;
    let until = proc::monotonic().saturating_add(relay.pool.upstream().retry_for);
    loop {
        let mut answer = exchange::ask(&relay.pool, parts, asker.method, buf, limits::UPSTREAM_IDLE)?;
        // Of nearly all answers the head need not be read again here.
        if !OVERLOADS.contains(&answer.status) {
            return Ok(answer);
        }
        let head = buf.get(answer.start..answer.filled).unwrap_or_default();
        let Some((status, wait)) = overload(head, asker.method, tries) else { return Ok(answer) };
        let used_up = status == 429 && used_up(&mut answer, asker.method, buf);
        // A client that tried again then would have us wait as long once more, and once more.
        answer.given_up = tries > 1 || used_up;
        if used_up || proc::monotonic().saturating_add(wait) >= until || !waited(asker, status, wait, tries) {
            return Ok(answer);
        }
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tries = tries.saturating_add(1);
        // The answer goes to the client then; its outcome cannot be recorded either, which cuts it.
        if relay.again(Retry { call: asker.call, r#try: tries, status, wait_ms }).is_err() {
            return Ok(answer);
        }
        let read = (answer.start, answer.filled);
        if let Some(answer) = drained(answer, asker.method, buf, read) {
            relay.pool.put(answer.link);
        }
    }
}

/// Status and how long to wait, where it is worth asking again.
fn overload(head: &[u8], method: &str, tries: u32) -> Option<(u16, Duration)> {
    let (r, _) = http::response(head, method).ok().flatten()?;
    let value = |name: &str| r.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
    if !OVERLOADS.contains(&r.status) || value("x-should-retry") == Some(b"false") {
        return None;
    }
    let backoff = backoff(tries);
    // Never earlier than asked, and not all at the same instant.
    let wait = match asked(&r.fields) {
        Some(asked) => backoff.max(asked.saturating_add(part(backoff, 1, 4))),
        None => backoff,
    };
    Some((r.status, wait))
}

/// What OpenAI, what is compatible with it, and Moonshot say in a 429's `error.code` or `error.type` where there is no money left. Anthropic and
/// OpenRouter have other statuses for that.
const USED_UP: [&str; 4] = [
    "insufficient_quota",
    "billing_not_active",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
];

/// The answer's body says that asking again is pointless. It is read behind its head, as far as that fits and for a moment, and stays there.
fn used_up(answer: &mut Answer, method: &str, buf: &mut [u8]) -> bool {
    let until = proc::monotonic().saturating_add(limits::REFUSED_DRAIN_TIME);
    loop {
        let here = buf.get(answer.start..answer.filled).unwrap_or_default();
        let (text, whole) = body_so_far(here, method).unwrap_or((Vec::new(), true));
        let left = until.saturating_sub(proc::monotonic());
        if !whole
            && let Some(space) = buf.get_mut(answer.filled..).filter(|s| !s.is_empty() && !left.is_zero())
        {
            // An end or a fault comes again where the rest is read.
            if let Some(n) = answer.link.read(space, left).ok().filter(|n| *n > 0) {
                answer.filled = answer.filled.saturating_add(n);
                continue;
            }
        }
        return says_used_up(&text);
    }
}

/// What there is of an answer's body, unpacked, and whether that is all. `None`: it is broken, or longer than an overload's.
fn body_so_far(answer: &[u8], method: &str) -> Option<(Vec<u8>, bool)> {
    let (r, mut at) = http::response(answer, method).ok().flatten()?;
    let mut body = Body::new(r.framing, limits::RETRY_DROP_BYTES).ok()?;
    let mut text = Vec::new();
    while !body.done() {
        let (used, payload) = body.next(answer.get(at..)?).ok()?;
        text.extend_from_slice(payload);
        at = at.saturating_add(used);
        if used == 0 {
            break;
        }
    }
    if text.starts_with(&[0x1f, 0x8b]) {
        text = inflated(&text);
    }
    Some((text, body.done()))
}

/// As much of it as matters. Never inlined: an `Inflater` is made on the stack, 50 KiB that every connection would keep for its callers.
#[inline(never)]
fn inflated(packed: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    Inflater::default().push(packed, &mut |piece| {
        if said.len() < limits::COPY_BYTES {
            said.extend_from_slice(piece);
        }
    });
    said
}

fn says_used_up(text: &[u8]) -> bool {
    let said: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let is = |place: &str| said.pointer(place).and_then(|w| w.as_str()).is_some_and(|w| USED_UP.contains(&w));
    is("/error/code") || is("/error/type")
}

/// Twice as long each time, up to a limit; of it a random part between half and all.
fn backoff(tries: u32) -> Duration {
    let doubled = 1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = limits::RETRY_FIRST.saturating_mul(doubled).min(limits::RETRY_MOST);
    // Without randomness all of it: jitter is a courtesy.
    let random = proc::random_hex(2).ok().and_then(|h| u32::from_str_radix(&h, 16).ok()).unwrap_or(0xffff);
    let half = part(whole, 1, 2);
    half.saturating_add(part(half, random, 0xffff))
}

fn part(of: Duration, some: u32, all: u32) -> Duration {
    of.saturating_mul(some).checked_div(all).unwrap_or_default()
}

/// `retry-after-ms`, else `retry-after` in seconds or as a date (RFC 9110 10.2.3).
fn asked(fields: &[Field<'_>]) -> Option<Duration> {
    let text = |name: &str| {
        let field = fields.iter().find(|f| f.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(field.value).ok().map(str::trim)
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // More digits than fit are a very long time.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Some(Duration::from_millis(millis));
    }
    let after = text("retry-after")?;
    match number(after) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => date(after).map(|at| Duration::from_secs(at).saturating_sub(proc::now())),
    }
}

/// Seconds since the epoch of an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`; the two obsolete forms are not read.
fn date(text: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let words: Vec<&str> = text.split(' ').collect();
    let &[_, day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let number = |text: &str, most: u64| {
        let digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().filter(|n: &u64| *n <= most)
    };
    let (day, year) = (number(day, 31)?, number(year, 9999).filter(|y| *y >= 1970)?);
    let month = MONTHS.find(month).filter(|at| at % 3 == 0 && month.len() == 3)? / 3;
    let mut clock = time.split(':').map(|part| number(part, 60));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    // Days before each month of a common year; leap days are those of the years before, and this one's from March on.
    let before = *[0u64, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334].get(month)?;
    let leaps = |y: u64| (y / 4).saturating_sub(y / 100).saturating_add(y / 400);
    let counted = if month < 2 { year.saturating_sub(1) } else { year };
    let days = year
        .saturating_sub(1970)
        .saturating_mul(365)
        .saturating_add(leaps(counted).saturating_sub(leaps(1969)))
        .saturating_add(before)
        .saturating_add(day.saturating_sub(1));
    let hours = days.saturating_mul(24).saturating_add(hour);
    Some(hours.saturating_mul(60).saturating_add(minute).saturating_mul(60).saturating_add(second))
}

/// Waits, and says so first. False: the client sends no more, or the run is over.
fn waited(asker: &Asker<'_>, status: u16, wait: Duration, tries: u32) -> bool {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let until = proc::monotonic().saturating_add(wait);
    if asker.client.hung_up() {
        return false;
    }
    asker.relay.tell(Note::Again(Again { status, millis, tries }));
    loop {
        let left = until.saturating_sub(proc::monotonic());
        if left.is_zero() {
            return true;
        }
        if asker.client.hangs_up(left.min(limits::RETRY_LOOK)) || asker.relay.over() {
            return false;
        }
    }
}

/// The answer, if its body could be read to its end, within bounds, and nothing stands behind it: then its connection may serve again.
fn drained(mut answer: Answer, method: &str, buf: &mut [u8], read: (usize, usize)) -> Option<Answer> {
    let (start, mut filled) = read;
    let (framing, close, used) = {
        let (r, used) = http::response(buf.get(start..filled)?, method).ok().flatten()?;
        (r.framing, r.close, used)
    };
    if close || !answer.sent_whole || framing == Framing::UntilClose {
        return None;
    }
    let mut at = start.saturating_add(used);
    let mut body = Body::new(framing, limits::RETRY_DROP_BYTES).ok()?;
    let until = proc::monotonic().saturating_add(limits::REFUSED_DRAIN_TIME);
    loop {
        while at < filled && !body.done() {
            let (used, _) = body.next(buf.get(at..filled)?).ok().filter(|(used, _)| *used > 0)?;
            at = at.saturating_add(used);
        }
        if body.done() {
            return (at == filled).then_some(answer);
        }
        let left = until.saturating_sub(proc::monotonic());
        at = 0;
        filled = answer.link.read(buf, left).ok().filter(|n| *n > 0)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{asked, backoff, date, overload};
    use crate::limits;
    use crate::sys::proc;
    use crate::wire::http::Field;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (text, at) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 23:59:59 GMT", Some(951_868_799)),
            ("Mon, 30 Nov 2026 17:00:00 GMT", Some(1_796_058_000)),
            ("Sun, 28 Feb 2100 12:00:00 GMT", Some(4_107_499_200)),
            ("Mon, 01 Mar 2100 12:00:00 GMT", Some(4_107_585_600)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("Sun, 06 ovD 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("", None),
        ] {
            assert_eq!(date(text), at, "{text}");
        }
    }

    #[test]
    fn what_a_provider_asks_for() {
        let got = |fields: &[(&str, &str)]| {
            let fields: Vec<Field<'_>> =
                fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
            asked(&fields)
        };
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(got(&[("Retry-After", "7")]), seconds(7));
        assert_eq!(got(&[("retry-after", "7"), ("Retry-After-Ms", "20")]), Some(Duration::from_millis(20)));
        assert_eq!(got(&[("retry-after", "99999999999999999999999")]), seconds(u64::MAX));
        for bad in ["", "-1", "soon", "1.5", "+1", "0x1"] {
            assert_eq!(got(&[("retry-after", bad)]), None, "{bad}");
        }
        assert_eq!(got(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), seconds(0));
        let far = got(&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]).unwrap_or_default();
        assert!(far > Duration::from_secs(3600) && proc::now() > Duration::ZERO);
    }

    #[test]
    fn waits_grow_stay_bounded_and_are_never_earlier_than_asked() {
        for tries in [1, 2, 3, 10, 31, 32, 33, u32::MAX] {
            let wait = backoff(tries);
            assert!(wait >= limits::RETRY_FIRST / 2 && wait <= limits::RETRY_MOST, "{tries}: {wait:?}");
        }
        assert!(backoff(1) <= limits::RETRY_FIRST && backoff(30) >= limits::RETRY_MOST / 2);
        let answer = |status: &str, fields: &str| format!("HTTP/1.1 {status} X\r\n{fields}\r\n").into_bytes();
        let wait = |status, fields| overload(&answer(status, fields), "POST", 1);
        for status in ["429", "503", "529"] {
            assert!(wait(status, "").is_some(), "{status}");
            assert!(wait(status, "Retry-After: 30\r\n").is_some_and(|(_, w)| w >= Duration::from_secs(30)));
            assert!(wait(status, "X-Should-Retry: false\r\n").is_none());
        }
        for status in ["200", "400", "401", "500", "502", "504"] {
            assert!(wait(status, "Retry-After: 1\r\n").is_none(), "{status}");
        }
    }
}
