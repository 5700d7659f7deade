//! Finds the key in bytes: in a request (the box must not have it) and in an answer (the provider must not send it back). Called by
//! `conn` and `answer`. Never keeps a copy of the key: the bytes are read in place.

use crate::relay::refuse::Refusal;
use crate::secret::Secret;
use crate::wire::json_text;

/// Horspool's search for one secret: skips up to its whole length at a time, so that a body costs less than its copy.
pub struct Tripwire {
    /// How far the window moves when its last byte is this one.
    skip: [usize; 256],
    /// The key holds this byte.
    holds: [bool; 256],
}

impl Tripwire {
    /// An empty secret is found nowhere.
    pub fn new(key: &Secret) -> Tripwire {
        #[expect(clippy::disallowed_methods, reason = "KEY-20 skip table of the search for the key")]
        let needle = key.expose();
        let mut skip = [needle.len(); 256];
        let last = needle.len().saturating_sub(1);
        for (i, b) in needle.iter().take(last).enumerate() {
            if let Some(s) = skip.get_mut(usize::from(*b)) {
                *s = last.saturating_sub(i);
            }
        }
        let mut holds = [false; 256];
        for b in needle {
            if let Some(h) = holds.get_mut(usize::from(*b)) {
                *h = true;
            }
        }
        Tripwire { skip, holds }
    }

    /// True where `hay` holds the whole key.
    pub fn hit(&self, key: &Secret, hay: &[u8]) -> bool {
        #[expect(clippy::disallowed_methods, reason = "KEY-21 search for the key in what passes")]
        let needle = key.expose();
        let Some(last) = needle.last() else {
            return false;
        };
        let mut at = 0usize;
        while let Some(window) = hay.get(at..at.saturating_add(needle.len())) {
            let Some(end) = window.last() else {
                return false;
            };
            if end == last && window == needle {
                return true;
            }
            at = at.saturating_add(self.skip.get(usize::from(*end)).copied().unwrap_or(1).max(1));
        }
        false
    }

    /// Refuses, and ends the run, where bytes of a request hold the key: as they stand, or as the decoded string of a JSON text.
    pub fn request(&self, key: &Secret, bytes: &[u8]) -> Result<(), Refusal> {
        let held = self.hit(key, bytes) || (self.spelled(bytes) && self.hit_decoded(key, bytes));
        if !held {
            return Ok(());
        }
        let mut refusal = Refusal::new(403, "a request may not hold the key");
        refusal.ends =
            Some("a request of the box held the provider key: it has leaked and should be replaced");
        Err(refusal)
    }

    /// An escape stands here that spells a byte of the key. Most bodies have none: a key is visible ASCII without `<`, `>` and `&`,
    /// which are all that common writers escape of it. May say so of an escaped backslash: `hit_decoded` knows better.
    fn spelled(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some((block, next)) = rest.split_first_chunk::<ESCAPES_BLOCK>() {
            let Some(shifted) = rest.get(1..).and_then(<[u8]>::first_chunk::<ESCAPES_BLOCK>) else { break };
            // Without branches the compiler looks at sixteen bytes at a time: cheaper than stopping at each backslash.
            let mut any = 0u8;
            for (a, b) in block.iter().zip(shifted) {
                any |= u8::from(*a == b'\\') & (u8::from(*b == b'u') | u8::from(*b == b'/'));
            }
            if any != 0 && (0..ESCAPES_BLOCK).any(|at| self.spells(rest.get(at..).unwrap_or_default())) {
                return true;
            }
            rest = next;
        }
        (0..rest.len()).any(|at| self.spells(rest.get(at..).unwrap_or_default()))
    }

    /// `from` begins with an escape for a byte of the key.
    fn spells(&self, from: &[u8]) -> bool {
        let byte = match from {
            [b'\\', b'/', ..] => b'/',
            [b'\\', b'u', b'0', b'0', digits @ ..] => {
                let digits = digits.get(..2).and_then(|d| std::str::from_utf8(d).ok());
                match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
                    Some(byte) => byte,
                    None => return false,
                }
            }
            _ => return false,
        };
        self.holds.get(usize::from(byte)).copied().unwrap_or(true)
    }

    /// Decodes the escapes of the whole text, whatever it is: in JSON they stand in strings only, so each string's content stands in
    /// what comes out as it would alone.
    fn hit_decoded(&self, key: &Secret, bytes: &[u8]) -> bool {
        let mut decoded = Vec::with_capacity(bytes.len());
        json_text::decode_into(bytes, &mut decoded);
        self.hit(key, &decoded)
    }

    /// Length of the longest proper prefix of the key that `hay` ends with: bytes that must wait for what comes next.
    pub fn begun(&self, key: &Secret, hay: &[u8]) -> usize {
        #[expect(clippy::disallowed_methods, reason = "KEY-22 does what passes end with a part of the key")]
        let needle = key.expose();
        let most = needle.len().saturating_sub(1).min(hay.len());
        let tail = hay.get(hay.len().saturating_sub(most)..).unwrap_or_default();
        (0..tail.len())
            .find(|i| tail.get(*i..).is_some_and(|t| needle.starts_with(t)))
            .map_or(0, |i| tail.len().saturating_sub(i))
    }
}

/// Bytes looked at for escapes before it is asked whether any was there; small, so that few are looked at twice.
const ESCAPES_BLOCK: usize = 256;

/// The search over a stream that comes in pieces.
#[derive(Default)]
pub struct Window {
    /// The end of what has passed, always shorter than the key.
    carry: Vec<u8>,
}

impl Window {
    /// Takes the next piece; true once the key has been seen across or within pieces.
    pub fn push(&mut self, wire: &Tripwire, key: &Secret, piece: &[u8]) -> bool {
        if !self.carry.is_empty() {
            // Only a match that begins in the carry can be new here, so one key's length of the piece is enough.
            self.carry.extend_from_slice(piece.get(..key.len().min(piece.len())).unwrap_or_default());
            if wire.hit(key, &self.carry) {
                return true;
            }
        }
        if wire.hit(key, piece) {
            return true;
        }
        if piece.len() >= key.len() || self.carry.is_empty() {
            self.carry.clear();
            let begun = wire.begun(key, piece);
            self.carry.extend_from_slice(piece.get(piece.len().saturating_sub(begun)..).unwrap_or_default());
        } else {
            let begun = wire.begun(key, &self.carry);
            self.carry.drain(..self.carry.len().saturating_sub(begun));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Tripwire, Window};
    use crate::secret::Secret;

    const KEY: &[u8] = b"sk-ant-sk-anx-0";

    #[test]
    fn found_at_every_place_and_split() {
        let key = Secret::new(KEY.to_vec());
        let wire = Tripwire::new(&key);
        let mut hay = b"sk-ant-sk-ant-".to_vec();
        hay.extend_from_slice(KEY);
        hay.extend_from_slice(b"sk-");
        assert!(wire.hit(&key, &hay));
        let (a, b) = hay.split_at(28);
        assert!(!wire.hit(&key, a) && !wire.hit(&key, b));
        for first in 0..hay.len() {
            for second in first..hay.len() {
                let mut w = Window::default();
                let (a, rest) = hay.split_at(first);
                let (b, c) = rest.split_at(second.saturating_sub(first));
                let seen = [a, b, c].iter().any(|p| w.push(&wire, &key, p));
                assert!(seen, "{first} {second}");
            }
        }
        let mut w = Window::default();
        assert!(hay.chunks(1).any(|p| w.push(&wire, &key, p)));
        let mut w = Window::default();
        assert!(!hay.iter().filter(|b| **b != b'x').any(|p| w.push(&wire, &key, &[*p])));
    }

    #[test]
    fn box_b26_key_in_any_decoded_string() {
        let key = Secret::new(b"sk-ant/1234567890".to_vec());
        let wire = Tripwire::new(&key);
        for text in [
            r#"{"a":"x sk-ant/1234567890 y"}"#,
            r#"{"a":["\n","sk-\u0061nt/1234567890"]}"#,
            r#"{"sk-ant\/1234567890":1}"#,
            r#"{"a":{"b":"\u0073\u006b\u002D\u0061\u006e\u0074\u002f1234567890"}}"#,
            r#"{"a":"\\\\\u0073k-ant/1234567890\ud800"}"#,
        ] {
            assert!(wire.request(&key, text.as_bytes()).is_err_and(|r| r.ends.is_some()), "{text}");
        }
        for text in [
            r#"{"a":"sk-ant/123456789"}"#,
            r#"{"a":"sk-ant\\u002f1234567890"}"#,
            r#"{"a":"\u2019"}"#,
            "",
            "\\",
        ] {
            assert!(wire.request(&key, text.as_bytes()).is_ok(), "{text}");
        }
    }

    /// Escapes are looked for in blocks: none may fall between two.
    #[test]
    fn a_spelled_key_is_found_at_every_offset() {
        let key = Secret::new(b"sk-ant/1234567890".to_vec());
        let wire = Tripwire::new(&key);
        for before in 0..600 {
            let pad = "x".repeat(before);
            let held = format!(r#"{{"a":"{pad}sk-\u0061nt/1234567890"}}"#);
            assert!(wire.request(&key, held.as_bytes()).is_err(), "{before}");
            assert!(wire.spelled(held.as_bytes()), "{before}");
            // Not a byte of the key, and no ASCII: nothing to decode for.
            assert!(!wire.spelled(format!(r#"{{"a":"{pad}\u003c\u2019\n"}}"#).as_bytes()), "{before}");
        }
    }

    #[test]
    fn waits_only_for_what_could_be_the_key() {
        let key = Secret::new(KEY.to_vec());
        let wire = Tripwire::new(&key);
        for (hay, n) in [
            (&b"data: {}\n\n"[..], 0),
            (b"tokens", 1),
            (b"xsk-ant-sk-an", 12),
            (b"sk-ant-sk-ant-", 7),
            (b"", 0),
        ] {
            assert_eq!(wire.begun(&key, hay), n, "{hay:?}");
        }
        let none = Secret::new(Vec::new());
        let wire = Tripwire::new(&none);
        assert!(!wire.hit(&none, b"") && !wire.hit(&none, b"abc"));
        assert_eq!(wire.begun(&none, b"abc"), 0);
    }
}
