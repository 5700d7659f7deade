//! The inside of JSON strings: where one ends, and what it says once its escapes are decoded. Total: what is not valid is decoded
//! somehow, never refused. Called by the strict scanner (`wire/json.rs`), the forgiving one (`relay/usage_scan.rs`) and the
//! policy.

use std::borrow::Cow;
use std::ops::Range;

/// A string or name token without its quotes, still escaped.
pub fn inside<'a>(text: &'a [u8], span: &Range<usize>) -> &'a [u8] {
    text.get(span.start.saturating_add(1)..span.end.saturating_sub(1)).unwrap_or_default()
}

/// The decoded bytes of a valid string token's inside, for comparing. A lone surrogate escape becomes the three bytes that
/// generalised UTF-8 (WTF-8) has for it; no UTF-8 text holds those, so strings that differ stay different.
pub fn decoded(inside: &[u8]) -> Cow<'_, [u8]> {
    if !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    let mut out = Vec::with_capacity(inside.len());
    decode_into(inside, &mut out);
    Cow::Owned(out)
}

/// The same for showing: lone surrogates become U+FFFD.
pub fn text(inside: &[u8]) -> Cow<'_, str> {
    match decoded(inside) {
        // Tried first because it is much faster.
        Cow::Borrowed(bytes) => {
            std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
        }
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Decodes escapes; total, so it may be given anything.
pub fn decode_into(mut rest: &[u8], out: &mut Vec<u8>) {
    while let Some(cut) = rest.iter().position(|&b| b == b'\\') {
        let (before, from) = rest.split_at(cut);
        out.extend_from_slice(before);
        let (unit, used) = escape_at(from);
        let (mut code, mut taken) = (unit, used);
        if (0xD800..0xDC00).contains(&unit) {
            let behind = from.get(used..).unwrap_or_default();
            if behind.starts_with(b"\\u") {
                let (low, more) = escape_at(behind);
                if (0xDC00..0xE000).contains(&low) {
                    let high = unit.wrapping_sub(0xD800).wrapping_shl(10);
                    code = high.wrapping_add(low.wrapping_sub(0xDC00)).wrapping_add(0x1_0000);
                    taken = used.saturating_add(more);
                }
            }
        }
        push_code(code, out);
        rest = from.get(taken..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// The code unit of the escape that `from` begins with, and its length.
fn escape_at(from: &[u8]) -> (u32, usize) {
    let simple = |c: u8| (u32::from(c), 2);
    match from.get(1) {
        Some(b'b') => simple(8),
        Some(b'f') => simple(12),
        Some(b'n') => simple(b'\n'),
        Some(b'r') => simple(b'\r'),
        Some(b't') => simple(b'\t'),
        Some(b'u') => {
            let digits = from.get(2..6).and_then(|d| std::str::from_utf8(d).ok());
            match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
                Some(unit) => (unit, 6),
                None => (0xFFFD, 2),
            }
        }
        Some(&c) => simple(c),
        None => (0xFFFD, 1),
    }
}

fn push_code(code: u32, out: &mut Vec<u8>) {
    if let Some(c) = char::from_u32(code) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    // A lone surrogate, D800 to DFFF: 1110_1101 10_xxxxxx 10_xxxxxx.
    let six = |shift: u32| u8::try_from((code >> shift) & 0x3F).unwrap_or(0) | 0x80;
    out.extend_from_slice(&[0xED, six(6), six(0)]);
}

/// How many bytes from the start are neither a quote, nor a backslash, nor below 0x20. Eight at a time.
#[inline]
pub fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, tail) = bytes.as_chunks::<8>();
    let mut at: usize = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // Turning bit 1 around makes 0x20 of the quote and leaves what is below it there: one subtraction finds both.
        let low = (word ^ ONES.wrapping_mul(2)).wrapping_sub(ONES.wrapping_mul(0x21));
        let slash = (word ^ ONES.wrapping_mul(0x5C)).wrapping_sub(ONES);
        let stops = (low | slash) & !word & HIGH;
        if stops != 0 {
            // A borrow marks only bytes behind one that is rightly marked, so the first mark is exact.
            return at.saturating_add(usize::try_from(stops.trailing_zeros() / 8).unwrap_or(0));
        }
        at = at.wrapping_add(8);
    }
    at.saturating_add(tail.iter().take_while(|b| !matches!(b, b'"' | b'\\' | 0..=0x1F)).count())
}

/// What may stand behind a backslash, but for `u`.
const ESCAPES: &[u8; 8] = b"\"\\/bfnrt";

/// Reads a string behind its opening quote, strictly: the bytes up to and with its closing quote, and whether an escape is among them.
/// The error: how many bytes are good, and why no more are.
pub fn string(text: &[u8]) -> Result<(usize, bool), (usize, &'static str)> {
    let plain = plain(text);
    match text.get(plain) {
        Some(b'"') => Ok((plain.saturating_add(1), false)),
        _ => escaped(text, plain).map(|read| (read, true)),
    }
}

/// The same from `at`, where something else than a quote stops it. Text of programs has an escape every few words, so what is usual is
/// passed over by the block, and in the other blocks all that stops a run is found at once: where one ends need not be known before the
/// next is looked for.
fn escaped(text: &[u8], mut at: usize) -> Result<usize, (usize, &'static str)> {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        if let Some(length) = goes_on(rest) {
            at = at.saturating_add(length);
            continue;
        }
        if rest.is_empty() {
            return Err((at, "the text ends too early"));
        }
        let mut end = [b' '; BLOCK];
        let block = rest.first_chunk().unwrap_or_else(|| {
            end.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            &end
        });
        let (mut stops, mut read) = (stops(block), 0usize);
        while stops != 0 {
            let stop = usize::try_from(stops.trailing_zeros()).unwrap_or(BLOCK);
            let here = at.saturating_add(stop);
            let length = match rest.get(stop..).unwrap_or_default() {
                [b'"', ..] => return Ok(here.saturating_add(1)),
                [b'\\', letter, ..] if ESCAPES.contains(letter) => 2,
                other => hex_escape(other).map_err(|(good, why)| (here.saturating_add(good), why))?,
            };
            read = stop.saturating_add(length);
            stops &= u64::MAX.checked_shl(u32::try_from(read).unwrap_or(u32::MAX)).unwrap_or(0);
        }
        at = at.saturating_add(read.max(BLOCK.min(rest.len())));
    }
}

/// Length of a block in which nothing ends the string, and every escape is of two bytes and has no backslash before it or behind; the
/// second of them may lie just behind the block. No branches, so that the compiler looks at sixteen bytes at a time.
fn goes_on(rest: &[u8]) -> Option<usize> {
    let block = rest.first_chunk::<BLOCK>()?;
    let behind = rest.get(1..)?.first_chunk::<BLOCK>()?;
    let mut other = u8::from(rest.first() == Some(&b'"'));
    for (a, b) in block.iter().zip(behind) {
        let slash = u8::from(*a == b'\\');
        let quote = u8::from(*b == b'"');
        let letter = ESCAPES.iter().fold(0, |any, l| any | u8::from(b == l)) & u8::from(*b != b'\\');
        other |= u8::from(*a < 0x20) | (slash & (letter ^ 1)) | (quote & (slash ^ 1));
    }
    let half = usize::from(block.last() == Some(&b'\\'));
    (other == 0).then_some(BLOCK.saturating_add(half))
}

/// Length of the escape of four hex digits that `from` begins with; else how much of it is good, and why no more is.
fn hex_escape(from: &[u8]) -> Result<usize, (usize, &'static str)> {
    match from {
        [b'\\', b'u', digits @ ..] => {
            match digits.iter().take(4).take_while(|b| b.is_ascii_hexdigit()).count() {
                4 => Ok(6),
                good => Err((good.saturating_add(2), "expected four hex digits")),
            }
        }
        [b'\\', ..] => Err((1, "not an escape")),
        _ => Err((0, "a raw control character in a string")),
    }
}

/// Bytes that `stops` looks at.
pub const BLOCK: usize = 64;

/// A bit for each byte that `plain` would stop at, the first byte's the lowest. Two loops without branches, so that the compiler
/// looks at sixteen bytes at a time.
pub fn stops(block: &[u8; BLOCK]) -> u64 {
    let mut marks = [0u8; BLOCK];
    for (mark, &b) in marks.iter_mut().zip(block) {
        *mark = u8::from(b < 0x20) | u8::from(b == b'"') | u8::from(b == b'\\');
    }
    let (words, _) = marks.as_chunks::<8>();
    words.iter().rev().fold(0, |bits, word| {
        // Byte n holds its mark in bit 8 n; the product has it in bit 56 + n, and nothing carries into these.
        (bits << 8) | (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56)
    })
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, plain, stops, string};

    /// The grammar, a byte at a time.
    fn naive(text: &[u8]) -> Result<(usize, bool), usize> {
        let (mut at, mut escaped) = (0usize, false);
        loop {
            let from = text.get(at..).unwrap_or_default();
            at = at.saturating_add(match from {
                [b'"', ..] => return Ok((at.saturating_add(1), escaped)),
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
                [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => 6,
                [b'\\' | 0..=0x1F, ..] | [] => return Err(at),
                _ => 1,
            });
            escaped |= from.first() == Some(&b'\\');
        }
    }

    /// Texts of what strings are made of, rare things rarely, so that blocks of every kind come.
    #[test]
    fn strings_end_where_the_grammar_says() {
        let (mut seed, mut whole) = (1u64, 0);
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let (length, rare) = (random(300), [3, 20, 400][usize::try_from(random(3)).unwrap_or(0)]);
            let mut text = Vec::new();
            for _ in 0..length {
                let piece: &[u8] = match random(rare) {
                    0 => [&b"\""[..], b"\\", b"\\u00e9", b"\\x", b"\x01", b"\\\\", b"\\u12"]
                        [usize::try_from(random(7)).unwrap_or(0)],
                    1 => b"\\n",
                    2 => b"\\\"",
                    _ => b"x",
                };
                text.extend_from_slice(piece);
            }
            let got = string(&text);
            whole += u32::from(got.is_ok());
            match (got, naive(&text)) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{}", text.escape_ascii()),
                // The place told is the first byte that is wrong, which may be within the escape.
                (Err((at, _)), Err(want)) => {
                    assert!(at >= want && at <= want.saturating_add(6), "{}", text.escape_ascii())
                }
                (got, want) => panic!("{got:?}, want {want:?}: {}", text.escape_ascii()),
            }
        }
        assert!(whole > 1000, "{whole}");
    }

    /// Each byte at each place of a word, between bytes that a borrow of the subtraction could mark by mistake.
    #[test]
    fn plain_stops_at_quotes_backslashes_and_controls_only() {
        for around in [0x20, 0x21, 0x23, 0x5B, 0x5D, 0x7F, 0x80, 0xA2, 0xDC, 0xFF, b'"', 0x1F] {
            for byte in 0..=u8::MAX {
                for at in 0..20 {
                    let mut text = [around; 20];
                    if let Some(b) = text.get_mut(at) {
                        *b = byte;
                    }
                    let naive = text.iter().take_while(|b| !matches!(b, b'"' | b'\\' | 0..=0x1F)).count();
                    assert_eq!(plain(&text), naive, "{byte:#x} at {at} in {around:#x}");
                }
            }
        }
    }

    /// Each byte at each place, alone and among its like.
    #[test]
    fn stops_are_where_plain_stops() {
        for byte in 0..=u8::MAX {
            let stop = u64::from(matches!(byte, b'"' | b'\\' | 0..=0x1F));
            for at in 0..BLOCK {
                let mut block = [b'x'; BLOCK];
                if let Some(b) = block.get_mut(at) {
                    *b = byte;
                }
                assert_eq!(stops(&block), stop << at, "{byte:#x} at {at}");
            }
            assert_eq!(stops(&[byte; BLOCK]), stop.wrapping_neg(), "{byte:#x}");
        }
    }
}
