//! Bytes of an output stream to lines, whatever the bytes are: decoded lossily, bounded in length, nothing left out. Pure.
//! Called by the readers of `turn`.

use crate::limits::EVENT_LINE_BYTES;
use crate::wire::control::Line;

/// The line that is not complete yet.
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// At the start of a stream.
    pub fn new() -> Lines {
        Lines { rest: Vec::new() }
    }

    /// Gives each line, or piece of a long one, to `keep`; `false` from it stops, and is returned.
    pub fn feed(&mut self, mut bytes: &[u8], keep: &mut dyn FnMut(Line) -> bool) -> bool {
        while let Some(at) = bytes.iter().position(|b| *b == b'\n') {
            let (line, after) = bytes.split_at(at);
            bytes = after.get(1..).unwrap_or_default();
            if !self.add(line, keep) || !self.end_line(keep) {
                return false;
            }
        }
        self.add(bytes, keep)
    }

    /// The stream ended: a last line without its line end is a line.
    pub fn end(&mut self, keep: &mut dyn FnMut(Line) -> bool) {
        if !self.rest.is_empty() {
            self.end_line(keep);
        }
    }

    /// Adds bytes without a line end; pieces go out as soon as it is known that more follows.
    fn add(&mut self, bytes: &[u8], keep: &mut dyn FnMut(Line) -> bool) -> bool {
        self.rest.extend_from_slice(bytes);
        let mut start = 0;
        while self.rest.len() - start > EVENT_LINE_BYTES {
            let end = start + piece(&self.rest[start..]);
            let text = String::from_utf8_lossy(&self.rest[start..end]).into_owned();
            start = end;
            if !keep(Line { text, more: true }) {
                return false;
            }
        }
        self.rest.drain(..start);
        true
    }

    fn end_line(&mut self, keep: &mut dyn FnMut(Line) -> bool) -> bool {
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest.clear();
        keep(Line { text, more: false })
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

/// Length of the next piece: `EVENT_LINE_BYTES`, or up to three less so as not to cut a UTF-8 character in two.
fn piece(bytes: &[u8]) -> usize {
    for back in 1..=3 {
        let needs = match bytes[EVENT_LINE_BYTES - back] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => break,
        };
        return if needs > back { EVENT_LINE_BYTES - back } else { EVENT_LINE_BYTES };
    }
    EVENT_LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::{EVENT_LINE_BYTES, Lines};

    /// Feeds in steps of `step` bytes and returns (text, more) pairs.
    fn split(bytes: &[u8], step: usize) -> Vec<(String, bool)> {
        let (mut lines, mut out) = (Lines::new(), Vec::new());
        let mut keep = |l: crate::wire::control::Line| {
            out.push((l.text, l.more));
            true
        };
        for part in bytes.chunks(step) {
            assert!(lines.feed(part, &mut keep));
        }
        lines.end(&mut keep);
        out
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let bytes = "eins\n\nzw\u{f6}lf\r\n\u{1b}[31mrot\nohne Ende".as_bytes();
        let want = ["eins", "", "zw\u{f6}lf\r", "\u{1b}[31mrot", "ohne Ende"];
        for step in 1..=bytes.len() {
            let got = split(bytes, step);
            assert!(got.iter().all(|(_, more)| !more));
            assert_eq!(got.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), want, "step {step}");
        }
        assert!(split(b"", 1).is_empty());
    }

    #[test]
    fn trap_30_a_long_line_goes_on_in_pieces_and_joins_to_itself() {
        for line in [
            "x".repeat(EVENT_LINE_BYTES * 3 + 1),
            "\u{20ac}".repeat(EVENT_LINE_BYTES),
            "a\u{1f980}".repeat(EVENT_LINE_BYTES),
        ] {
            for step in [1000, 64 * 1024, line.len()] {
                let mut got = split(format!("{line}\nnext\n").as_bytes(), step);
                assert_eq!(got.pop(), Some(("next".to_owned(), false)));
                assert_eq!(got.iter().rev().skip(1).filter(|(_, more)| !more).count(), 0);
                assert!(got.iter().all(|(text, _)| text.len() <= EVENT_LINE_BYTES));
                assert_eq!(got.iter().map(|(text, _)| text.as_str()).collect::<String>(), line);
            }
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_event() {
        let line = "x".repeat(EVENT_LINE_BYTES);
        assert_eq!(split(format!("{line}\n").as_bytes(), 7777), [(line.clone(), false)]);
        assert_eq!(split(line.as_bytes(), 7777), [(line.clone(), false)]);
    }

    #[test]
    fn trap_1_bytes_that_are_no_text_are_kept_lossily() {
        let got = split(b"\xff\xfe\x80abc\n\0\xc3\n", 1);
        assert_eq!(
            got,
            [("\u{fffd}\u{fffd}\u{fffd}abc".to_owned(), false), ("\0\u{fffd}".to_owned(), false)]
        );
        let garbage: Vec<u8> = (0..EVENT_LINE_BYTES * 2).map(|i| 0x80 | (i % 127) as u8).collect();
        assert!(split(&garbage, 4096).len() >= 2);
    }
}
