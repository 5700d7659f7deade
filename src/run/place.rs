//! Places of the host that a run names: the work directory, mounts, masks, and files that must lie outside them. Checks only; whose uid
//! the box gets is decided here, by who owns the work directory.

use crate::engine::plan::Engine;
use crate::error::Error;
use crate::limits;
use crate::run::spec::Mount;
use crate::run::{channel, report, state};
use crate::sys::{file, proc};
use std::path::{Component, Path, PathBuf};

/// The work directory and whom the box runs as.
pub struct Work {
    /// Absolute, without links as far as it exists.
    pub path: PathBuf,
    /// It does not exist yet.
    pub make: bool,
    /// Uid and gid of the box.
    pub user: (u32, u32),
}

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

fn facts(path: &Path) -> std::io::Result<file::Facts> {
    #[expect(clippy::disallowed_methods, reason = "FILE-44 what a named directory is")]
    file::facts(path)
}

fn real(path: &Path) -> std::io::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "FILE-45 a named path without its links")]
    file::real_path(path)
}

/// What decides about a directory of root.
#[derive(Clone, Copy)]
pub struct Whose {
    /// bwrap never has a box of root.
    pub engine: Engine,
    /// `--as-root`.
    pub as_root: bool,
}

/// Decides path and uid. The caller's own uid, or, for root, the directory's owner; a directory of root itself is refused on bwrap,
/// where a box of root's would be uid 0 of the host (`audit/THREATS.md`), and needs `--as-root` on docker.
pub fn workdir(text: &str, whose: Whose, notes: &mut Vec<String>) -> Result<Work, Error> {
    let refused = |why: &str| Error::wrong("use", format!("the work directory {text}"), why);
    if text.is_empty() {
        return Err(refused("the name is empty"));
    }
    let (path, make) = existing_part(Path::new(text)).map_err(|e| refused(&e.to_string()))?;
    if path == Path::new("/") {
        return Err(refused("it is the root of the file system"));
    }
    if path.to_str().is_none() {
        return Err(refused("its path is not UTF-8").remedy("rename it"));
    }
    let (uid, gid) = proc::ids();
    let holder = if make { parent_that_exists(&path) } else { path.clone() };
    let owner = facts(&holder).map_err(|e| refused(&e.to_string()))?;
    if owner.mode & S_IFMT != S_IFDIR {
        return Err(refused("it is not a directory"));
    }
    let shown = path.display();
    let user = match (uid, make) {
        (0, false) if owner.uid == 0 && whose.as_root => {
            notes.push(format!(
                "--as-root: the agent is uid 0 of this host, without capabilities; what it makes in {shown} is root's"
            ));
            (0, owner.gid)
        }
        (0, false) if owner.uid == 0 => {
            let give = format!("give it to the user the agent shall be: chown -R USER {shown}");
            return Err(match whose.engine {
                Engine::Bwrap => refused("root owns it, and a box never runs as root here").remedy(give),
                Engine::Docker => refused("root owns it, and the agent would be root")
                    .remedy(format!("{give}; or give --as-root")),
            });
        }
        (0, true) if owner.uid == 0 => {
            let id = limits::BOX_UID;
            notes.push(format!(
                "{shown} is made for uid {id}: its parent belongs to root, and the agent shall not be root"
            ));
            (id, id)
        }
        (0, _) => (owner.uid, owner.gid),
        (me, false) if owner.uid != me => {
            return Err(refused("it belongs to another user")
                .remedy(format!("run as its owner, or: sudo chown -R {me} {shown}")));
        }
        (me, _) => (me, gid),
    };
    if whose.as_root && user.0 != 0 {
        return Err(Error::wrong(
            "take",
            "--as-root",
            format!("the agent will be uid {}: the flag has no effect", user.0),
        ));
    }
    if make && uid != 0 && !allowed(&owner, user, 0o3) {
        return Err(refused(&format!("it does not exist and {} is not writable", holder.display())));
    }
    if !make && !allowed(&owner, user, 0o7) {
        return Err(
            refused("its owner may not read, write and enter it").remedy(format!("chmod u+rwx {shown}"))
        );
    }
    reachable(&path, user, whose.engine).map_err(|why| refused(&why))?;
    Ok(Work { path, make, user })
}

/// The path made absolute: links resolved as far as it exists, the rest as typed. The flag: it does not exist.
fn existing_part(path: &Path) -> std::io::Result<(PathBuf, bool)> {
    match real(path) {
        Ok(found) => return Ok((found, false)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let Some(name) = path.file_name() else {
        let why = if path == Path::new(".") { "the current directory is gone" } else { "it ends in .." };
        return Err(std::io::Error::other(why));
    };
    let parent = match path.parent() {
        Some(p) if p != Path::new("") => p,
        _ => Path::new("."),
    };
    // A dangling link has a name but no target: making it would follow it.
    let (base, _) = existing_part(parent)?;
    Ok((base.join(name), true))
}

/// Like `existing_part`, but the last component stays as typed, be it a link or not.
fn unfollowed(path: &Path) -> std::io::Result<(PathBuf, bool)> {
    let Some(name) = path.file_name() else { return Err(std::io::Error::other("it names no file")) };
    let parent = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    let (base, missing) = existing_part(parent)?;
    Ok((base.join(name), missing))
}

fn parent_that_exists(path: &Path) -> PathBuf {
    path.ancestors().skip(1).find(|p| facts(p).is_ok()).unwrap_or(Path::new("/")).to_path_buf()
}

/// `bits` (rwx) as user, group and others of one owner, one group, no supplementary groups: what the box will have.
fn allowed(f: &file::Facts, (uid, gid): (u32, u32), bits: u32) -> bool {
    let shift = match (f.uid == uid, f.gid == gid) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    (f.mode >> shift) & bits == bits
}

/// bwrap runs as the box's user: it has to get to the path without root's powers. Docker's daemon has them.
fn reachable(path: &Path, user: (u32, u32), engine: Engine) -> Result<(), String> {
    if proc::ids().0 != 0 || engine == Engine::Docker {
        return Ok(());
    }
    for dir in path.ancestors().skip(1) {
        if facts(dir).is_ok_and(|f| !allowed(&f, user, 0o1)) {
            return Err(format!("uid {} may not pass through {}", user.0, dir.display()));
        }
    }
    Ok(())
}

/// Reads `HOST:DEST[:ro|:rw]` for each.
pub fn mounts(texts: &[String], user: (u32, u32), engine: Engine) -> Result<Vec<Mount>, Error> {
    let mut all: Vec<Mount> = Vec::new();
    for text in texts {
        let refused = |why: &str| Error::wrong("mount", text.clone(), why);
        let parts: Vec<&str> = text.split(':').collect();
        let (host, dest, mode) = match parts.as_slice() {
            [host, dest] if !host.is_empty() && !dest.is_empty() => (*host, *dest, "rw"),
            [host, dest, mode] if !host.is_empty() && !dest.is_empty() => (*host, *dest, *mode),
            _ => return Err(refused("write it as HOST:DEST, HOST:DEST:ro or HOST:DEST:rw")),
        };
        if mode != "ro" && mode != "rw" {
            return Err(refused("the mode is ro or rw")
                .remedy("a path with a colon cannot be mounted; give a link to it without one"));
        }
        let host = real(Path::new(host)).map_err(|e| refused(&e.to_string()))?;
        if facts(&host).map_err(|e| refused(&e.to_string()))?.mode & S_IFMT != S_IFDIR {
            return Err(refused("the host side is not a directory"));
        }
        if host.to_str().is_none() {
            return Err(refused("the path of the host side is not UTF-8").remedy("rename it"));
        }
        reachable(&host, user, engine).map_err(|why| refused(&why))?;
        let dest = normal(dest).ok_or_else(|| refused("the destination is not an absolute path below /"))?;
        if reserved(&dest) {
            return Err(refused(
                "the destination is taken: /work is where -w lands, the others make up the box",
            ));
        }
        if all.iter().any(|m| below(&dest, &m.dest) || below(&m.dest, &dest)) {
            return Err(refused("another mount already holds that destination, or one inside the other"));
        }
        all.push(Mount { host, dest, readonly: mode == "ro" });
    }
    Ok(all)
}

/// Absolute and lexically clean, before it is compared: `/data/../work` is `/work`. `None`: relative, or `/` itself.
fn normal(dest: &str) -> Option<String> {
    if !dest.starts_with('/') || dest.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in dest.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| format!("/{}", parts.join("/")))
}

/// Destinations that belong to the box itself.
fn reserved(dest: &str) -> bool {
    [
        "/work", "/proc", "/sys", "/dev", "/run", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/tmp",
        "/home", "/sanduk",
    ]
    .iter()
    .any(|taken| below(dest, taken))
}

fn below(path: &str, dir: &str) -> bool {
    path == dir || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// Each mask: relative, clean, existing, no link on the way, so that what is hidden is what was meant.
pub fn masks(texts: &[String], work: &Work) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for text in texts {
        let refused = |why: &str| Error::wrong("mask", text.clone(), why);
        let path = Path::new(text);
        let clean = path.components().all(|c| matches!(c, Component::Normal(_)))
            && path.components().next().is_some();
        if !clean {
            return Err(refused("it must be a path below the work directory, without .."));
        }
        if work.make {
            return Err(refused("the work directory does not exist yet"));
        }
        let whole = work.path.join(path);
        match real(&whole) {
            Ok(found) if found == whole => {}
            Ok(_) => return Err(refused("a link is on the way: name what it leads to")),
            Err(e) => return Err(refused(&e.to_string())),
        }
        all.push(path.components().collect::<PathBuf>().display().to_string());
    }
    Ok(all)
}

/// What a mask hides must not be in the box by another way; `report`: the agent is to write one.
pub fn hidden(masks: &[String], work: &Path, mounts: &[Mount], report: bool) -> Result<(), Error> {
    for mask in masks {
        if report && mask == report::NAME {
            return Err(Error::wrong("mask", mask.clone(), "the agent could not write its report there")
                .remedy("give --no-report-instruction and no -o, or leave the mask out"));
        }
        let whole = work.join(mask);
        let shown = |m: &&Mount| whole.starts_with(&m.host) || m.host.starts_with(&whole);
        if let Some(mount) = mounts.iter().find(shown) {
            let why = format!("--mount {} shows it at {}", mount.host.display(), mount.dest);
            return Err(Error::wrong("mask", mask.clone(), why).remedy("leave out one of the two"));
        }
    }
    Ok(())
}

/// Records, receipts and the directory where runs meet their boxes are in no box: they hold tokens and the account of the run.
pub fn apart(work: &Path, mounts: &[Mount], state_home: Option<&Path>) -> Result<(), Error> {
    let state = state_home.and_then(|home| existing_part(&home.join("sanduk")).ok()).map(|(path, _)| path);
    for dir in [work].into_iter().chain(mounts.iter().map(|m| m.host.as_path())) {
        let refused = |what: &str, path: &Path, remedy: &str| {
            let why = format!("it shows {what} ({}), and no box may see that", path.display());
            Err(Error::wrong("put into a box", dir.display().to_string(), why).remedy(remedy))
        };
        if Path::new(channel::BASE).starts_with(dir) {
            return refused("the runs' channels", Path::new(channel::BASE), "name a directory below it");
        }
        for part in [state::RUNS, state::RECEIPTS] {
            let Some(ours) = state.as_ref().map(|s| s.join(part)) else { continue };
            if ours.starts_with(dir) || dir.starts_with(&ours) {
                let remedy = "name another directory, or set XDG_STATE_HOME to another place";
                return refused("the state directory", &ours, remedy);
            }
        }
    }
    Ok(())
}

/// As root the relay becomes a user of its own; what it has to read later must be open to everybody.
pub fn for_the_relay(text: &str) -> Result<PathBuf, Error> {
    let refused = |why: &str| Error::wrong("use", format!("--ca-file {text}"), why);
    let path = real(Path::new(text)).map_err(|e| refused(&e.to_string()))?;
    let file = facts(&path).map_err(|e| refused(&e.to_string()))?;
    if file.mode & S_IFMT != S_IFREG {
        return Err(refused("it is not a regular file"));
    }
    let relay = (limits::RELAY_UIDS, limits::RELAY_UIDS);
    let may = allowed(&file, relay, 0o4) && reachable(&path, relay, Engine::Bwrap).is_ok();
    match proc::ids().0 == 0 && !may {
        true => Err(refused("started by root, the relay is a user of its own, who may not read it")
            .remedy("make it and the directories above it readable by all: it holds no secret")),
        false => Ok(path),
    }
}

/// The same for a socket that it has to connect to.
pub fn relay_connects(socket: &str) -> Result<(), Error> {
    let refused = |why: &str| Error::wrong("use stunnel at", socket, why);
    let path = Path::new(socket);
    let relay = (limits::RELAY_UIDS, limits::RELAY_UIDS);
    let may =
        facts(path).is_ok_and(|f| allowed(&f, relay, 0o2)) && reachable(path, relay, Engine::Bwrap).is_ok();
    match proc::ids().0 == 0 && !may {
        true => Err(refused("started by root, the relay is a user of its own, who may not connect to it")
            .remedy("give its directory mode 0711 and start stunnel with umask 000: `sanduk stunnel-conf` says how")),
        false => Ok(()),
    }
}

/// A file or directory that the agent must not be able to write: absolute, its parent exists, outside every mount.
pub fn outside(
    text: Option<&str>,
    flag: &'static str,
    work: &Path,
    mounts: &[Mount],
) -> Result<Option<PathBuf>, Error> {
    let Some(text) = text else { return Ok(None) };
    let refused = |why: &str| Error::wrong("take", format!("{flag} {text}"), why);
    let (path, missing) = match flag {
        "--log-dir" => existing_part(Path::new(text)),
        // A link in a file's place is not followed: writing refuses it.
        _ => unfollowed(Path::new(text)),
    }
    .map_err(|e| refused(&e.to_string()))?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    if flag != "--log-dir" && missing && facts(parent).is_err() {
        return Err(refused("its directory does not exist"));
    }
    if path.starts_with(work) || mounts.iter().any(|m| path.starts_with(&m.host)) {
        return Err(refused("it lies in a directory that the box can write").remedy("choose a place outside"));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_33_destinations_are_cleaned_before_they_are_compared() {
        assert_eq!(normal("/data/../work").as_deref(), Some("/work"));
        assert_eq!(normal("//work//x/.").as_deref(), Some("/work/x"));
        assert_eq!(normal("/.."), None);
        assert_eq!(normal("data"), None);
        assert!(reserved("/work/x") && reserved("/work") && !reserved("/work2"));
    }

    #[test]
    fn permission_bits_are_those_of_the_box() {
        let f = file::Facts { mode: S_IFDIR | 0o750, uid: 7, gid: 8, size: 0, links: 1 };
        assert!(allowed(&f, (7, 1), 0o7));
        assert!(allowed(&f, (1, 8), 0o5) && !allowed(&f, (1, 8), 0o7));
        assert!(!allowed(&f, (1, 1), 0o1));
    }
}
