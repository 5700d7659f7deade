//! The key, wherever a process of the box could find it: environments, command lines, memory, files, the mount table.

use crate::inside::probe::places::walk;
use crate::limits;
use crate::sys::attempt;
use crate::sys::file::{self, Dir};
use crate::wire::probe::{Found, Way, holds};
use std::cell::Cell;
use std::path::Path;

/// All of it. `key`: inverted, as in the task.
pub fn probe(key: &[u8], all: &mut Vec<Found>) {
    all.push(processes(key, "environ", "key-environ"));
    all.push(processes(key, "cmdline", "key-argv"));
    all.push(memory(key));
    all.push(mounts(key));
    all.push(files(key));
}

/// Pids of this namespace.
fn pids() -> Vec<u32> {
    #[expect(clippy::disallowed_methods, reason = "FILE-160 attest: the processes of the box")]
    let names = Dir::open(Path::new("/proc")).and_then(|d| d.names()).unwrap_or_default();
    names.iter().filter_map(|n| n.parse().ok()).collect()
}

fn read(path: &str) -> std::io::Result<Vec<u8>> {
    #[expect(clippy::disallowed_methods, reason = "FILE-161 attest: what /proc says of the box's processes")]
    file::read_named(Path::new(path), limits::PROBE_FILE)
}

fn processes(key: &[u8], file: &str, id: &str) -> Found {
    let (mut looked, mut closed) = (0u32, 0u32);
    for pid in pids() {
        match read(&format!("/proc/{pid}/{file}")) {
            Ok(bytes) if holds(&bytes, key) => {
                return Found::new(id, Way::Open, format!("the key is in /proc/{pid}/{file}"));
            }
            Ok(_) => looked = looked.saturating_add(1),
            Err(_) => closed = closed.saturating_add(1),
        }
    }
    match looked {
        0 => Found::new(id, Way::Untested, "no process could be looked at"),
        _ => Found::new(id, Way::Shut, format!("not in {looked} that can be read; {closed} closed")),
    }
}

/// Readable memory of every process that lets itself be read; PID 1 does not.
fn memory(key: &[u8]) -> Found {
    let id = "key-memory";
    let (mut looked, mut closed) = (0u32, 0u32);
    for pid in pids() {
        let Ok(maps) = read(&format!("/proc/{pid}/maps")) else {
            closed = closed.saturating_add(1);
            continue;
        };
        looked = looked.saturating_add(1);
        for line in String::from_utf8_lossy(&maps).lines() {
            if scan(pid, line, key) {
                return Found::new(
                    id,
                    Way::Open,
                    format!("the key is in the memory of process {pid}: {line}"),
                );
            }
        }
    }
    match looked {
        0 => Found::new(id, Way::Untested, "no process could be looked at"),
        _ => Found::new(id, Way::Shut, format!("not in {looked} that can be read; {closed} closed")),
    }
}

/// One line of `maps` (proc(5)).
fn scan(pid: u32, line: &str, key: &[u8]) -> bool {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let number = |t: &str| u64::from_str_radix(t, 16).ok();
    let bounds = range.split_once('-').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    let Some((start, end)) = bounds.filter(|_| rights.starts_with('r')) else { return false };
    let most = end.saturating_sub(start).min(limits::PROBE_MEMORY);
    let hit = Cell::new(false);
    #[expect(clippy::disallowed_methods, reason = "FILE-162 attest: the memory of the box's processes")]
    let _ = attempt::pieces(Path::new(&format!("/proc/{pid}/mem")), start, most, key.len(), &mut |piece| {
        hit.set(holds(piece, key));
        hit.get()
    });
    hit.get()
}

fn mounts(key: &[u8]) -> Found {
    match read("/proc/self/mountinfo") {
        Ok(bytes) if holds(&bytes, key) => {
            Found::new("key-mounts", Way::Open, "the key is in the mount table")
        }
        Ok(_) => Found::new("key-mounts", Way::Shut, "not in the mount table"),
        Err(e) => Found::new("key-mounts", Way::Untested, e.to_string()),
    }
}

/// Every regular file but the system's programs under /usr, which are the image's or the host's own.
fn files(key: &[u8]) -> Found {
    let id = "key-files";
    let hit = Cell::new(None);
    let mut looked = 0u64;
    let whole = walk("/", &["/proc", "/sys", "/usr"], &mut |path, mode| {
        if mode & 0o170_000 == 0o100_000 && path != Path::new("/sanduk") {
            looked = looked.saturating_add(1);
            let found = Cell::new(false);
            #[expect(clippy::disallowed_methods, reason = "FILE-163 attest: every file of the box")]
            let _ = attempt::pieces(path, 0, limits::PROBE_MEMORY, key.len(), &mut |piece| {
                found.set(holds(piece, key));
                found.get()
            });
            if found.get() {
                hit.set(Some(path.display().to_string()));
            }
        }
        true
    });
    match (hit.take(), whole) {
        (Some(path), _) => Found::new(id, Way::Open, format!("the key is in {path}")),
        (None, true) => Found::new(id, Way::Shut, format!("in none of {looked} files")),
        (None, false) => Found::new(id, Way::Untested, "the box has too many files to look through"),
    }
}
