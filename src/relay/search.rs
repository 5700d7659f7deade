//! Finds any of many needles in one pass (Wu and Manber's search with blocks of three bytes): the last three bytes of a window say how far
//! it may move, mostly its whole length. The needles are forms of secrets, read in place: nothing here holds a byte of them but the
//! table of distances. Called by `leak`.

use crate::relay::forms::{self, Code};
use crate::secret::Secret;

/// A secret that must not pass, and what a person calls it.
pub struct Named {
    /// The variable's name, or a clause.
    pub name: String,
    /// Its bytes.
    pub value: Secret,
}

impl Named {
    fn bytes(&self) -> &[u8] {
        #[expect(
            clippy::disallowed_methods,
            reason = "KEY-20 a secret is compared in place with what passes"
        )]
        let bytes = self.value.expose();
        bytes
    }
}

/// Slots of the table of distances, a power of two: 16 KiB stay in the processor's first cache.
const SLOT_BITS: u32 = 14;
const SLOTS: usize = 1 << SLOT_BITS;
/// Bytes of a block.
const BLOCK: usize = 3;
/// Longest window: a distance is a byte.
const WINDOW: usize = 128;
/// Lines of base64 have at least so many letters (64 in PEM, 76 in MIME and of `base64`).
const LINE: usize = 64;

/// A part of a needle that the window may be on, of the window's length.
struct Factor {
    slot: usize,
    secret: usize,
    code: Code,
    /// Where in the needle.
    at: usize,
}

/// The needles of a set of secrets.
pub struct Search {
    window: usize,
    /// How far the window moves, by slot; 0: one of the factors may be here.
    shift: Box<[u8; SLOTS]>,
    /// By slot.
    factors: Vec<Factor>,
    /// Secrets too short for a block.
    short: Vec<usize>,
    /// Line ends within base64 are seen through.
    wrapped: bool,
    /// Bytes of the longest needle.
    longest: usize,
    /// A needle holds this byte.
    pub holds: [bool; 256],
    /// A needle begins with this byte.
    begins: [bool; 256],
    /// All needles, by secret.
    needles: Vec<(usize, Code)>,
}

impl Search {
    /// For these secrets; an empty one is found nowhere. `least`: see `forms::all`. `wrapped`: base64 may be broken into lines.
    pub fn new(secrets: &[Named], least: usize, wrapped: bool) -> Search {
        let mut s = Search {
            window: WINDOW,
            shift: Box::new([0; SLOTS]),
            factors: Vec::new(),
            short: Vec::new(),
            wrapped,
            longest: 0,
            holds: [false; 256],
            begins: [false; 256],
            needles: Vec::new(),
        };
        let mut long = Vec::new();
        for (secret, value) in secrets.iter().map(Named::bytes).enumerate() {
            for code in forms::all(value, least) {
                let length = code.len(value.len());
                s.longest = s.longest.max(length);
                for byte in (0..length).filter_map(|at| code.byte(value, at)) {
                    mark(&mut s.holds, byte);
                }
                if let Some(first) = code.byte(value, 0) {
                    mark(&mut s.begins, first);
                    s.needles.push((secret, code));
                }
                if length >= BLOCK {
                    s.window = s.window.min(s.widest(code, length));
                    long.push((secret, code, length));
                } else if length > 0 {
                    s.short.push(secret);
                }
            }
        }
        let far = s.window.saturating_sub(BLOCK).saturating_add(1);
        s.shift.fill(u8::try_from(far).unwrap_or(u8::MAX));
        for (secret, code, length) in long {
            let value = secrets.get(secret).map(Named::bytes).unwrap_or_default();
            for at in s.places(code, length) {
                s.learn(value, secret, code, at);
            }
        }
        s.factors.sort_by_key(|f| f.slot);
        s
    }

    /// The widest window by which this needle can be found.
    fn widest(&self, code: Code, length: usize) -> usize {
        if self.wrapped && code.wraps() {
            (length.min(LINE.saturating_mul(2)).saturating_mul(31) / 64).max(BLOCK)
        } else {
            length
        }
    }

    /// Where factors of this needle begin. Base64 that may be broken has so many that the longest piece that a line end leaves of it
    /// (half of it, or a whole line) holds one.
    fn places(&self, code: Code, length: usize) -> Vec<usize> {
        if !(self.wrapped && code.wraps()) {
            return vec![0];
        }
        let part = length.min(LINE.saturating_mul(3));
        let piece = part.div_ceil(2).min(LINE);
        let step = piece.saturating_sub(self.window).saturating_add(1);
        (0..=part.saturating_sub(self.window)).step_by(step).collect()
    }

    fn learn(&mut self, value: &[u8], secret: usize, code: Code, at: usize) {
        let last = self.window.saturating_sub(BLOCK);
        for from in 0..=last {
            let byte =
                |i: usize| code.byte(value, at.saturating_add(from).saturating_add(i)).unwrap_or_default();
            let slot = slot([byte(0), byte(1), byte(2)]);
            let distance = u8::try_from(last.saturating_sub(from)).unwrap_or(u8::MAX);
            if let Some(shift) = self.shift.get_mut(slot) {
                *shift = distance.min(*shift);
            }
            if distance == 0 {
                self.factors.push(Factor { slot, secret, code, at });
            }
        }
    }

    /// The first secret found in `hay`, by its position among `secrets`, which are those that it was made for.
    pub fn find(&self, secrets: &[Named], hay: &[u8]) -> Option<usize> {
        if let Some(short) = self.short.iter().find(|of| within(secrets, **of, hay)) {
            return Some(*short);
        }
        let mut rest = hay.get(self.window.saturating_sub(BLOCK)..)?;
        while let Some(block) = rest.first_chunk::<BLOCK>() {
            let slot = slot(*block);
            match self.shift.get(slot).copied().map_or(0, usize::from) {
                0 => {
                    let end = hay.len().saturating_sub(rest.len()).saturating_add(BLOCK);
                    if let Some(found) = self.held(secrets, slot, hay, end.saturating_sub(self.window)) {
                        return Some(found);
                    }
                    rest = rest.get(1..)?;
                }
                shift => rest = rest.get(shift..)?,
            }
        }
        None
    }

    /// A needle stands where the window, at `at`, is on one of the factors of this slot.
    fn held(&self, secrets: &[Named], slot: usize, hay: &[u8], at: usize) -> Option<usize> {
        let from = self.factors.partition_point(|f| f.slot < slot);
        let here = self.factors.get(from..)?.iter().take_while(|f| f.slot == slot);
        let is = |f: &&Factor| {
            let value = secrets.get(f.secret).map(Named::bytes).unwrap_or_default();
            let wrapped = self.wrapped && f.code.wraps();
            forwards(f, value, hay.get(at..).unwrap_or_default(), wrapped)
                && backwards(f, value, hay.get(..at).unwrap_or_default(), wrapped)
        };
        here.into_iter().find(is).map(|f| f.secret)
    }

    /// Length of the longest part of `hay`'s end that a needle begins with: bytes that must wait for what comes next.
    pub fn begun(&self, secrets: &[Named], hay: &[u8]) -> usize {
        if !hay.last().is_some_and(|b| marked(&self.holds, *b)) {
            return 0;
        }
        let most = self.longest.saturating_sub(1).min(hay.len());
        let mut tail = hay.get(hay.len().saturating_sub(most)..).unwrap_or_default();
        while let Some((first, next)) = tail.split_first() {
            if marked(&self.begins, *first) && self.needles.iter().any(|n| begins(secrets, n, tail)) {
                return tail.len();
            }
            tail = next;
        }
        0
    }

    /// Bytes of the longest needle.
    pub fn longest(&self) -> usize {
        self.longest
    }
}

/// A needle begins with all of `part`, and has more.
fn begins(secrets: &[Named], needle: &(usize, Code), part: &[u8]) -> bool {
    let (secret, code) = *needle;
    let value = secrets.get(secret).map(Named::bytes).unwrap_or_default();
    part.len() < code.len(value.len())
        && part.iter().enumerate().all(|(i, b)| code.byte(value, i) == Some(*b))
}

fn mark(table: &mut [bool; 256], byte: u8) {
    if let Some(of) = table.get_mut(usize::from(byte)) {
        *of = true;
    }
}

/// The byte is in the table.
#[inline]
pub fn marked(table: &[bool; 256], byte: u8) -> bool {
    table.get(usize::from(byte)).copied().unwrap_or(true)
}

fn within(secrets: &[Named], of: usize, hay: &[u8]) -> bool {
    let value = secrets.get(of).map(Named::bytes).unwrap_or_default();
    !value.is_empty() && hay.windows(value.len()).any(|w| w == value)
}

/// A multiplication spreads the 24 bits over the slots.
#[inline]
fn slot(block: [u8; BLOCK]) -> usize {
    let [a, b, c] = block;
    let hash = u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9E37_79B1).wrapping_shr(32 - SLOT_BITS);
    usize::try_from(hash).unwrap_or(0)
}

/// The needle from the factor on. Where it may be broken, white space between two letters is passed over, and so are the escapes
/// that JSON has for it, in a string or in a string within a string.
fn forwards(f: &Factor, value: &[u8], hay: &[u8], wrapped: bool) -> bool {
    let mut rest = hay;
    for at in f.at..f.code.len(value.len()) {
        let Some(want) = f.code.byte(value, at) else { return false };
        if wrapped {
            rest = after_break(rest);
        }
        match rest.split_first() {
            Some((byte, next)) if *byte == want => rest = next,
            _ => return false,
        }
    }
    true
}

fn after_break(mut rest: &[u8]) -> &[u8] {
    loop {
        rest = match rest {
            [b'\\', b'n' | b'r' | b't', next @ ..] => next,
            [b'\\' | b'\n' | b'\r' | b' ' | b'\t', next @ ..] => next,
            _ => return rest,
        }
    }
}

/// The needle before the factor, from its end.
fn backwards(f: &Factor, value: &[u8], hay: &[u8], wrapped: bool) -> bool {
    let mut rest = hay;
    for at in (0..f.at).rev() {
        let Some(want) = f.code.byte(value, at) else { return false };
        if wrapped {
            rest = before_break(rest);
        }
        match rest.split_last() {
            Some((byte, next)) if *byte == want => rest = next,
            _ => return false,
        }
    }
    true
}

fn before_break(mut rest: &[u8]) -> &[u8] {
    loop {
        rest = match rest {
            [next @ .., b'\\', b'n' | b'r' | b't'] => next,
            [next @ .., b'\\' | b'\n' | b'\r' | b' ' | b'\t'] => next,
            _ => return rest,
        }
    }
}
