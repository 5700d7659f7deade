//! Seeded mutation of byte strings, for any fuzz test: `run` mutates seeds, calls the check, and prints seed, round and bytes
//! where it panics. Same seed, same bytes, on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// xorshift64*; good enough to choose where to break things.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0 to `n` - 1; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n.max(1)
    }

    fn of<'a>(&mut self, list: &'a [impl AsRef<[u8]>]) -> &'a [u8] {
        list[self.below(list.len())].as_ref()
    }
}

/// `SANDUK_FUZZ`, or what is quick enough for every test run.
pub fn rounds() -> u64 {
    number("SANDUK_FUZZ").unwrap_or(20_000)
}

/// `SANDUK_SEED`, or 1.
pub fn seed() -> u64 {
    number("SANDUK_SEED").unwrap_or(1)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Checks every seed as it is, then `rounds` mutations.
pub fn run(what: &str, seeds: &[impl AsRef<[u8]>], words: &[&[u8]], check: impl Fn(&mut Random, &[u8])) {
    let (mut random, mut at) = (Random::new(seed()), 0);
    while at < rounds() + seeds.len() as u64 {
        let bytes = match seeds.get(usize::try_from(at).unwrap()) {
            Some(bytes) => bytes.as_ref().to_vec(),
            None => one(&mut random, seeds, words),
        };
        if catch_unwind(AssertUnwindSafe(|| check(&mut random, &bytes))).is_err() {
            panic!("{what}: seed {}, round {at}: {}", seed(), bytes.escape_ascii());
        }
        at += 1;
    }
}

/// One seed with one to four changes.
pub fn one(random: &mut Random, seeds: &[impl AsRef<[u8]>], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.of(seeds).to_vec();
    for _ in 0..=random.below(4) {
        change(random, &mut bytes, seeds, words);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[impl AsRef<[u8]>], words: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below((bytes.len() - at).min(40) + 1);
    match random.below(9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.next() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 => {
            let other = random.of(seeds).to_vec();
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        6 => swap_lines(random, bytes),
        // At a line's start a word is a whole field more often than not.
        7 => {
            let starts: Vec<_> =
                bytes.windows(2).enumerate().filter(|w| w.1 == b"\r\n").map(|w| w.0 + 2).collect();
            let at = starts.get(random.below(starts.len())).copied().unwrap_or(at);
            bytes.splice(at..at, random.of(words).to_vec());
        }
        _ => drop(bytes.splice(at..end.min(at + random.below(4)), random.of(words).to_vec())),
    }
}

fn swap_lines(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if !lines.is_empty() {
        let (a, b) = (random.below(lines.len()), random.below(lines.len()));
        lines.swap(a, b);
        *bytes = lines.concat();
    }
}
