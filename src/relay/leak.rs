//! What must not pass: the key and the host's secrets in a request (the box must not have them), the key in an answer (the provider must
//! not send it back). Called by `conn` and `answer`.

use crate::limits;
use crate::relay::receive::Beside;
use crate::relay::refuse::Refusal;
use crate::relay::search::{self, Named, Search};
use crate::secret::Secret;
use crate::wire::json_text;
use std::borrow::Cow;
use std::sync::atomic::AtomicUsize;

/// The secrets of one relay and the searches for them.
pub struct Guard {
    /// No key at all.
    none: Secret,
    /// The key first; empty where the provider needs none.
    secrets: Vec<Named>,
    /// All of them, for requests.
    requests: Search,
    /// The key alone, for answers.
    answers: Search,
    /// Bytes that JSON escapes in any text: quotes, backslashes and controls stand in some secret.
    escaped: bool,
    /// Bytes above ASCII do.
    wide: bool,
    /// A space does, which forms of a URL write as `+`.
    spaced: bool,
}

impl Guard {
    /// `key`: of the provider. `named`: what else may not leave.
    pub fn new(key: Secret, named: Vec<Named>) -> Guard {
        let mut secrets = vec![Named { name: KEY.into(), value: key }];
        let answers = Search::new(&secrets, limits::SECRET_LEAST, false);
        secrets.extend(named);
        let requests = Search::new(&secrets, limits::SECRET_LEAST, true);
        let some =
            |of: &dyn Fn(u8) -> bool| (0..=u8::MAX).any(|b| of(b) && search::marked(&requests.holds, b));
        Guard {
            none: Secret::new(Vec::new()),
            escaped: some(&|b| b < 0x20 || b == b'"' || b == b'\\'),
            wide: some(&|b| b >= 0x80),
            spaced: some(&|b| b == b' '),
            secrets,
            requests,
            answers,
        }
    }

    /// The provider's key.
    pub fn key(&self) -> &Secret {
        self.secrets.first().map_or(&self.none, |first| &first.value)
    }

    /// What the secrets beside the key are called.
    pub fn names(&self) -> Vec<String> {
        self.secrets.iter().skip(1).map(|n| n.name.clone()).collect()
    }

    /// Refuses, and ends the run, where bytes of a request hold a secret. `total`: see `held`.
    pub fn request(&self, bytes: &[u8], total: &AtomicUsize) -> Result<(), Refusal> {
        let Some(found) = self.held(bytes, total)? else { return Ok(()) };
        // The agent is told neither which one nor in which form.
        let mut refusal = Refusal::new(403, "a request may not hold a secret of the host");
        let words = match self.secrets.get(found).map_or("", |s| s.name.as_str()) {
            KEY => format!("{KEY}: it has leaked and should be replaced"),
            CANARY => format!("{CANARY}: the agent, or what it ran, sends credentials that nobody gave it"),
            name => format!("the value of {name}: it has leaked and should be replaced"),
        };
        refusal.ends = Some(format!("a request of the box held {words}"));
        Err(refusal)
    }

    /// A secret stands in this text, in any form that `forms` knows, plainly or spelled by the escapes of JSON or of a URL, also of a
    /// string within a string. Its position, the key's being 0. `total`: bytes of bodies held by all connections; decoded copies,
    /// of which there are two at a time, are counted there, and what finds no room is refused.
    pub fn held(&self, bytes: &[u8], total: &AtomicUsize) -> Result<Option<usize>, Refusal> {
        let find = |text: &[u8]| self.requests.find(&self.secrets, text);
        if let Some(found) = find(bytes) {
            return Ok(Some(found));
        }
        let mut text = Cow::Borrowed(bytes);
        let mut copies = None;
        for _ in 0..limits::SPELLINGS {
            let (json, url) = self.spelled(&text);
            let spaced = self.spaced && text.contains(&b'+');
            if (json || url || spaced) && copies.is_none() {
                copies = Some(Beside::new(total, bytes.len().saturating_mul(2))?);
            }
            if json {
                let mut decoded = Vec::with_capacity(text.len());
                json_text::decode_into(&text, &mut decoded);
                text = Cow::Owned(decoded);
                if let Some(found) = find(&text) {
                    return Ok(Some(found));
                }
            }
            if url {
                text = Cow::Owned(percent_decoded(&text));
                if let Some(found) = find(&text) {
                    return Ok(Some(found));
                }
            }
            if spaced {
                let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
                if let Some(found) = find(&spaced) {
                    return Ok(Some(found));
                }
            }
            if !json && !url {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The key stands in this text of an answer, or of what an answer said.
    pub fn key_in(&self, bytes: &[u8]) -> bool {
        self.answers.find(&self.secrets, bytes).is_some()
    }

    /// An escape stands here that spells a byte of a secret: of JSON, of a URL. Most bodies have none: a key is visible ASCII without `<`,
    /// `>` and `&`, which are all that common writers escape of it. May say so where it is none, as behind an escaped backslash.
    fn spelled(&self, bytes: &[u8]) -> (bool, bool) {
        let (mut json, mut url) = (false, false);
        let mut rest = bytes;
        while let Some((block, next)) = rest.split_first_chunk::<ESCAPES_BLOCK>() {
            let Some(shifted) = rest.get(1..).and_then(<[u8]>::first_chunk::<ESCAPES_BLOCK>) else { break };
            // Without branches the compiler looks at sixteen bytes at a time: cheaper than stopping at each backslash.
            let mut any = 0u8;
            for (a, b) in block.iter().zip(shifted) {
                let escape = u8::from(*b == b'u') | u8::from(*b == b'/');
                any |= (u8::from(*a == b'\\') & escape) | u8::from(*a == b'%');
            }
            if any != 0 || self.escaped {
                self.spells_in(rest, ESCAPES_BLOCK, &mut json, &mut url);
            }
            if json && url {
                return (true, true);
            }
            rest = next;
        }
        self.spells_in(rest, rest.len(), &mut json, &mut url);
        (json, url)
    }

    /// The first `length` bytes of `from`: each that may begin an escape is looked at.
    fn spells_in(&self, from: &[u8], length: usize, json: &mut bool, url: &mut bool) {
        let marks = from.iter().take(length).enumerate().filter(|(_, b)| matches!(b, b'\\' | b'%'));
        for (at, _) in marks {
            self.spells(from.get(at..).unwrap_or_default(), json, url);
        }
    }

    /// `from` begins with an escape for a byte of a secret.
    #[inline]
    fn spells(&self, from: &[u8], json: &mut bool, url: &mut bool) {
        let holds = |byte: u8| search::marked(&self.requests.holds, byte);
        match from {
            [b'\\', b'/', ..] => *json |= holds(b'/'),
            [b'\\', b'u', b'0', b'0', digits @ ..] => {
                *json |= hex(digits).is_some_and(|b| holds(b) || b >= 0x80 && self.wide)
            }
            [b'\\', b'u', ..] => *json |= self.wide,
            [b'\\', _, ..] => *json |= self.escaped,
            [b'%', digits @ ..] => *url |= hex(digits).is_some_and(holds),
            _ => {}
        }
    }
}

/// What a person calls the first of the secrets.
const KEY: &str = "the provider key";
/// What a person calls the value that a run planted itself (`--canary`). No variable has such a name.
pub const CANARY: &str = "the-planted-canary";

/// Bytes looked at for escapes before it is asked whether any was there; small, so that few are looked at twice.
const ESCAPES_BLOCK: usize = 256;

/// The byte that two hexadecimal digits say.
fn hex(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..2)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The text with its `%XX` decoded (RFC 3986 section 2.1); what is none stays.
pub fn percent_decoded(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rest.len());
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        let behind = from.get(1..).unwrap_or_default();
        match hex(behind) {
            Some(byte) => {
                out.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push(b'%');
                rest = behind;
            }
        }
    }
    out.extend_from_slice(rest);
    out
}

/// The search for the key over an answer that comes in pieces.
#[derive(Default)]
pub struct Window {
    /// The end of what has passed that the key may begin with; always shorter than its longest form.
    carry: Vec<u8>,
}

impl Window {
    /// Takes the next piece; true once the key has been seen across or within pieces.
    pub fn push(&mut self, guard: &Guard, piece: &[u8]) -> bool {
        let longest = guard.answers.longest();
        if !self.carry.is_empty() {
            // Only a match that begins in the carry can be new here, so one key's length of the piece is enough.
            self.carry.extend_from_slice(piece.get(..longest.min(piece.len())).unwrap_or_default());
            if guard.key_in(&self.carry) {
                return true;
            }
        }
        if guard.key_in(piece) {
            return true;
        }
        if piece.len() >= longest || self.carry.is_empty() {
            self.carry.clear();
            let begun = begun(guard, piece);
            self.carry.extend_from_slice(piece.get(piece.len().saturating_sub(begun)..).unwrap_or_default());
        } else {
            let begun = begun(guard, &self.carry);
            self.carry.drain(..self.carry.len().saturating_sub(begun));
        }
        false
    }

    /// What has passed ends with a part of the key.
    pub fn within(&self) -> bool {
        !self.carry.is_empty()
    }
}

/// Bytes at the end of `hay` that must wait for what comes next.
pub fn begun(guard: &Guard, hay: &[u8]) -> usize {
    guard.answers.begun(&guard.secrets, hay)
}

#[cfg(test)]
mod tests {
    use super::{Guard, Window, begun};
    use crate::limits;
    use crate::relay::search::Named;
    use crate::secret::Secret;
    use std::sync::atomic::AtomicUsize;

    fn held(guard: &Guard, bytes: &[u8]) -> Option<usize> {
        guard.held(bytes, &AtomicUsize::new(0)).ok().flatten()
    }

    /// Decoded copies of a body take memory too: they are counted like it, and given back.
    #[test]
    fn copies_are_counted_with_the_bodies() {
        let guard = guard(KEY, &[]);
        let (plain, spelled) = (br#"{"a":"0123456789"}"#, br#"{"a":"\u0073k-ant-"}"#);
        let near = limits::BODY_TOTAL - 2 * spelled.len();
        for (filled, fits) in [(near, true), (near + 1, false)] {
            let total = AtomicUsize::new(filled);
            assert!(guard.request(plain, &total).is_ok(), "nothing is copied");
            assert_eq!(
                guard.request(spelled, &total).map_err(|r| (r.status, r.ends)),
                if fits { Ok(()) } else { Err((503, None)) }
            );
            assert_eq!(total.into_inner(), filled);
        }
    }

    const KEY: &[u8] = b"sk-ant-sk-anx-0";

    fn guard(key: &[u8], named: &[(&str, &[u8])]) -> Guard {
        let named = named
            .iter()
            .map(|(name, value)| Named { name: name.to_string(), value: Secret::new(value.to_vec()) });
        Guard::new(Secret::new(key.to_vec()), named.collect())
    }

    /// RFC 4648 with padding, written apart from what is tested; a line end after each `line` letters.
    #[expect(clippy::arithmetic_side_effects, reason = "a unit test")]
    fn base64(bytes: &[u8], url: bool, line: usize, end: &str) -> String {
        let (plus, slash) = if url { ('-', '_') } else { ('+', '/') };
        let letters: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain([plus, slash]).collect();
        let mut out: Vec<char> = Vec::new();
        for three in bytes.chunks(3) {
            let n = three.iter().fold(0usize, |n, b| n * 256 + usize::from(*b)) << (8 * (3 - three.len()));
            out.extend((0..4).map(|i| if i > three.len() { '=' } else { letters[n >> (18 - 6 * i) & 63] }));
        }
        out.chunks(line).map(|l| l.iter().collect::<String>()).collect::<Vec<_>>().join(end)
    }

    #[test]
    fn found_at_every_place_and_split() {
        let guard = guard(KEY, &[]);
        let mut hay = b"sk-ant-sk-ant-".to_vec();
        hay.extend_from_slice(KEY);
        hay.extend_from_slice(b"sk-");
        assert!(guard.key_in(&hay));
        let (a, b) = hay.split_at(28);
        assert!(!guard.key_in(a) && !guard.key_in(b));
        for first in 0..hay.len() {
            for second in first..hay.len() {
                let mut w = Window::default();
                let (a, rest) = hay.split_at(first);
                let (b, c) = rest.split_at(second.saturating_sub(first));
                let seen = [a, b, c].iter().any(|p| w.push(&guard, p));
                assert!(seen, "{first} {second}");
            }
        }
        let mut w = Window::default();
        assert!(hay.chunks(1).any(|p| w.push(&guard, p)));
        let mut w = Window::default();
        assert!(!hay.iter().filter(|b| **b != b'x').any(|p| w.push(&guard, &[*p])));
    }

    /// An answer that says the key in base64, in all splits into two and byte by byte.
    #[test]
    fn base64_in_an_answer() {
        let key = b"sk-ant-REALKEY/0123456789+abcdef";
        let guard = guard(key, &[]);
        for before in 0..3 {
            for url in [false, true] {
                let text = [&b"Bearer: "[..5 + before], key, b"~~"].concat();
                let hay = format!("data: {{\"x\":\"{}\"}}\n\n", base64(&text, url, 4096, "")).into_bytes();
                for at in 0..hay.len() {
                    let (a, b) = hay.split_at(at);
                    let mut w = Window::default();
                    assert!(w.push(&guard, a) || w.push(&guard, b), "{before} {url} {at}");
                }
                let mut w = Window::default();
                assert!(hay.iter().any(|b| w.push(&guard, &[*b])));
                // Nothing of it was let go before: what is sent ends before its first letter.
                let core = hay.len() - 40;
                let held = begun(&guard, &hay[..core]);
                assert!(held > 0, "{held}");
            }
        }
    }

    #[test]
    fn box_b26_key_in_any_decoded_string() {
        let guard = guard(b"sk-ant/1234567890", &[]);
        for text in [
            r#"{"a":"x sk-ant/1234567890 y"}"#,
            r#"{"a":["\n","sk-\u0061nt/1234567890"]}"#,
            r#"{"sk-ant\/1234567890":1}"#,
            r#"{"a":{"b":"\u0073\u006b\u002D\u0061\u006e\u0074\u002f1234567890"}}"#,
            r#"{"a":"\\\\\u0073k-ant/1234567890\ud800"}"#,
            // A string of JSON in a string of JSON: arguments of a tool.
            r#"{"a":"{\"b\":\"sk-ant\\/1234567890\"}"}"#,
            r#"{"a":"sk-ant\\u002f1234567890"}"#,
            "sk-ant%2F1234567890",
            r#"{"a":"%73%6b-ant%2f1234567890"}"#,
            r#"{"a":"\u0025%32F sk-ant%2\u00461234567890"}"#,
        ] {
            assert!(
                guard.request(text.as_bytes(), &AtomicUsize::new(0)).is_err_and(|r| r.ends.is_some()),
                "{text}"
            );
        }
        for text in [
            r#"{"a":"sk-ant/123456789"}"#,
            r#"{"a":"\u2019"}"#,
            r#"{"a":"100% sk-ant%2G1234567890"}"#,
            "",
            "\\",
            "%",
            "%2",
        ] {
            assert!(guard.request(text.as_bytes(), &AtomicUsize::new(0)).is_ok(), "{text}");
        }
    }

    /// Escapes are looked for in blocks: none may fall between two.
    #[test]
    fn a_spelled_key_is_found_at_every_offset() {
        let guard = guard(b"sk-ant!1234567890", &[]);
        for before in 0..600 {
            let pad = "x".repeat(before);
            for spelled in ["sk-\\u0061nt!1234567890", "sk-ant%211234567890"] {
                let held = format!(r#"{{"a":"{pad}{spelled}"}}"#);
                assert!(guard.request(held.as_bytes(), &AtomicUsize::new(0)).is_err(), "{before}");
            }
            // Not a byte of the key, and no ASCII: nothing to decode for.
            let other = format!(r#"{{"a":"{pad}\u003c\u2019\n%3C%\\"}}"#);
            assert_eq!(guard.spelled(other.as_bytes()), (false, false), "{before}");
        }
    }

    /// Every form of every kind of secret, in strings of strings, broken into lines or not.
    #[test]
    fn secrets_in_every_form() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIB\"\\VAIBADANBgkqhkiG9w0BAQ\tEFAASCAT4w\n-----END PRIVATE KEY-----";
        let phrase = "correct horse battery ünïcode staple";
        let long: String = (0..700u32).map(|n| char::from(b'!' + (n * 7 % 90) as u8)).collect();
        let all = [pem, phrase, "0123456789abcdef", "a+b/c?d=e&f%20g~~~~", long.as_str()];
        for secret in all {
            let guard = guard(
                b"sk-ant-REALKEY-0123456789",
                &[("OTHER", b"other-other-other"), ("NAME", secret.as_bytes())],
            );
            let json = serde_json::to_string(secret).unwrap();
            let spelled: String = secret.encode_utf16().map(|c| format!("\\u{c:04X}")).collect();
            let url: String = secret.bytes().map(|b| format!("%{b:02x}")).collect();
            let form: String = secret
                .bytes()
                .map(|b| match b {
                    b' ' => "+".into(),
                    b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
                    b => format!("%{b:02X}"),
                })
                .collect();
            let mut forms = vec![json, spelled, url, form];
            for before in 0..3 {
                for (line, end) in [(usize::MAX, ""), (76, "\n"), (64, "\r\n"), (76, "\n "), (60, "\n")] {
                    for alphabet in [false, true] {
                        let text = format!("{}{secret}\n", &"xyz"[..before]);
                        forms.push(base64(text.as_bytes(), alphabet, line, end));
                    }
                }
            }
            for form in forms {
                let once = format!("{{\"a\":{}}}", serde_json::to_string(&form).unwrap());
                let twice = format!("{{\"a\":{}}}", serde_json::to_string(&once).unwrap());
                for text in [form.clone(), once, twice] {
                    let said =
                        guard.request(text.as_bytes(), &AtomicUsize::new(0)).err().and_then(|r| r.ends);
                    assert!(said.is_some_and(|s| s.contains("the value of NAME")), "{secret:?} in {text}");
                }
            }
        }
    }

    /// Base64 of a secret at every offset of a text that is broken into lines.
    #[test]
    fn no_line_end_hides_a_secret() {
        for length in [16, 17, 20, 31, 40, 57, 58, 108, 140, 300] {
            let secret: Vec<u8> = (0..length).map(|n: usize| b'!' + (n * 37 % 94) as u8).collect();
            let guard = guard(b"", &[("N", &secret)]);
            for before in 0..80 {
                let text = [&vec![b'#'; before][..], &secret, b"##"].concat();
                for line in [64, 76] {
                    let body = base64(&text, false, line, "\\n");
                    assert!(held(&guard, body.as_bytes()).is_some(), "{length} {before} {line}");
                }
            }
        }
    }

    #[test]
    fn innocent_texts_pass() {
        let guard = guard(b"local", &[("N", b"0123456789abcdef"), ("M", b"AAAAAAAAAAAAAAAAAAAAAAAA")]);
        for text in [
            "loca",
            "bG9jYWw=",
            "0123456789abcde",
            "0123456789abcdeg",
            "AAAAAAAAAAAAAAAAAAAAAAA",
            "QUFBQUFBQUFBQUFB",
        ] {
            assert_eq!(held(&guard, text.as_bytes()), None, "{text}");
        }
        assert_eq!(held(&guard, b"the local one"), Some(0));
    }

    #[test]
    fn waits_only_for_what_could_be_the_key() {
        let of = guard(KEY, &[]);
        for (hay, n) in [
            (&b"data: {}\n\n"[..], 0),
            (b"tokens", 1),
            (b"xsk-ant-sk-an", 12),
            (b"sk-ant-sk-ant-", 7),
            (b"", 0),
        ] {
            assert_eq!(begun(&of, hay), n, "{hay:?}");
        }
        for short in [&b""[..], b"k", b"ke"] {
            let of = guard(short, &[]);
            assert!(!of.key_in(b"") && !of.key_in(b"abc"));
            assert_eq!(of.key_in(b"a kettle"), !short.is_empty());
            assert_eq!(begun(&of, b"abck"), usize::from(short == b"ke"));
        }
    }
}
