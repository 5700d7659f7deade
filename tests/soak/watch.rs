//! What a process holds, read from /proc: memory, threads, descriptors, children.

use std::time::Duration;

/// One look at a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Resident memory in KiB.
    pub rss: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors; 0 where /proc does not show them to us (a process that is not dumpable belongs to root there).
    pub fds: u64,
    /// Living children.
    pub children: u64,
    /// Children that ended and were not waited for.
    pub zombies: u64,
}

impl Sample {
    /// None: the process is gone.
    pub fn of(pid: u32) -> Option<Sample> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let mut sample = Sample { rss: number("VmRSS:"), threads: number("Threads:"), ..Sample::default() };
        sample.fds = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |d| d.count() as u64);
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            // The name stands in brackets and may hold anything.
            let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
            let mut words = rest.split(' ');
            let (state, parent) = (words.next(), words.next());
            if parent.and_then(|p| p.parse().ok()) == Some(pid) {
                match state {
                    Some("Z") => sample.zombies += 1,
                    _ => sample.children += 1,
                }
            }
        }
        Some(sample)
    }

    /// In the order of `NAMES`.
    pub fn numbers(&self) -> [u64; 5] {
        [self.rss, self.threads, self.fds, self.children, self.zombies]
    }
}

/// What the numbers are.
pub const NAMES: [&str; 5] = ["rss KiB", "threads", "descriptors", "children", "zombies"];
/// What the median of the last quarter may be above that of the quarter before: load is never the same twice.
const SLACK: [u64; 5] = [4096, 12, 40, 8, 6];

/// No number goes on growing: the median of the last quarter against that of the third, a twentieth and `SLACK` allowed. The first half
/// is warm-up.
pub fn assert_no_trend(what: &str, samples: &[Sample]) {
    let quarter = samples.len() / 4;
    assert!(quarter >= 3, "{what}: only {} samples", samples.len());
    let median = |of: &[Sample], n: usize| {
        let mut all: Vec<u64> = of.iter().map(|s| s.numbers()[n]).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    for (n, name) in NAMES.iter().enumerate() {
        let medians: Vec<u64> = samples.chunks(quarter).take(4).map(|q| median(q, n)).collect();
        let most = samples.iter().map(|s| s.numbers()[n]).max().unwrap_or(0);
        println!("{what}: {name}: medians of the quarters {medians:?}, most {most}");
        let allowed = medians[2] + medians[2] / 20 + SLACK[n];
        assert!(medians[3] <= allowed, "{what}: {name} grows: {medians:?}");
    }
}

/// Waits until the process is as small as it was, in threads, descriptors and children.
pub fn assert_back_to(what: &str, pid: u32, before: Sample, patience: Duration) {
    let until = std::time::Instant::now() + patience;
    loop {
        let now = Sample::of(pid).expect("it lives");
        let (a, b) = (now.numbers(), before.numbers());
        if (1..5).all(|n| a[n] <= b[n]) {
            return println!("{what}: at the end {now:?}, at the start {before:?}");
        }
        assert!(std::time::Instant::now() < until, "{what}: at the end {now:?}, at the start {before:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
