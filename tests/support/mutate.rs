//! Seeded mutation of byte strings, for any fuzz test: `run` replays `tests/corpus/WHAT`, then mutates seeds and calls the check. An input
//! that makes the check panic, or not end, is written to that folder, from where every later run replays it. Same seed, same bytes, on
//! every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One input takes milliseconds; one that takes so long on the busiest machine does not end.
const HANG: Duration = Duration::from_secs(120);

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

/// Replays the corpus, checks every seed as it is, then `rounds` mutations.
pub fn run(what: &str, seeds: &[impl AsRef<[u8]>], words: &[&[u8]], check: impl Fn(&mut Random, &[u8])) {
    generate(what, rounds(), seeds, |random| one(random, seeds, words), check);
}

/// As `run`, with inputs of the test's own making, `rounds` of them.
pub fn generate(
    what: &str,
    rounds: u64,
    seeds: &[impl AsRef<[u8]>],
    make: impl Fn(&mut Random) -> Vec<u8>,
    check: impl Fn(&mut Random, &[u8]),
) {
    let watch = Watch::start(what);
    let replayed = corpus_files(what);
    for (path, bytes) in &replayed {
        // Where the check cuts at random places, one try may miss.
        for seed in 0..32 {
            let tried = watch.over(bytes, || check(&mut Random::new(seed), bytes));
            assert!(tried, "{what}: {} fails again: {}", path.display(), bytes.escape_ascii());
        }
    }
    let (mut random, mut at) = (Random::new(seed()), 0);
    while at < rounds + seeds.len() as u64 {
        let bytes = match seeds.get(usize::try_from(at).unwrap()) {
            Some(bytes) => bytes.as_ref().to_vec(),
            None => make(&mut random),
        };
        if !watch.over(&bytes, || check(&mut random, &bytes)) {
            let path = keep(what, &bytes);
            let shown = bytes.escape_ascii();
            panic!("{what}: seed {}, round {at}, kept as {}: {shown}", seed(), path.display());
        }
        at += 1;
    }
}

/// Ends the process where one input takes too long, and keeps that input.
struct Watch(Arc<Now>);

/// The input that is being looked at, and since when.
type Now = Mutex<Option<(Instant, Vec<u8>)>>;

impl Watch {
    fn start(what: &str) -> Watch {
        let now: Arc<Now> = Arc::default();
        let (weak, what) = (Arc::downgrade(&now), what.to_string());
        std::thread::spawn(move || {
            while let Some(now) = weak.upgrade() {
                late(&what, &now);
                drop(now);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Watch(now)
    }

    /// Whether the check came to its end.
    fn over(&self, bytes: &[u8], check: impl FnOnce()) -> bool {
        *self.0.lock().unwrap() = Some((Instant::now(), bytes.to_vec()));
        let good = catch_unwind(AssertUnwindSafe(check)).is_ok();
        *self.0.lock().unwrap() = None;
        good
    }
}

fn late(what: &str, now: &Now) {
    if let Some((since, bytes)) = &*now.lock().unwrap()
        && since.elapsed() > HANG
    {
        eprintln!("{what}: does not end, kept as {}: {}", keep(what, bytes).display(), bytes.escape_ascii());
        std::process::abort();
    }
}

fn corpus(what: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(what)
}

fn corpus_files(what: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(dir) = std::fs::read_dir(corpus(what)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = dir.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|p| (p.clone(), std::fs::read(p).unwrap())).collect()
}

/// Named by its content, so that the same fault is one file.
fn keep(what: &str, bytes: &[u8]) -> PathBuf {
    let path = corpus(what).join(&sanduk::wire::digest::sha256_hex(bytes)[..16]);
    let written = std::fs::create_dir_all(corpus(what)).and_then(|()| std::fs::write(&path, bytes));
    // A tree that cannot be written: the message holds the bytes too.
    if let Err(e) = written {
        eprintln!("{}: {e}", path.display());
    }
    path
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
