//! What of the work directory concerns a run: it is made, an old REPORT.md goes, the new one is read and copied, set-id bits are
//! cleared. All of it belongs to an enemy: no link is followed, types, sizes and link counts are checked. Called by `life`.

use crate::error::Error;
use crate::limits;
use crate::run::show::Show;
use crate::run::spec::Spec;
use crate::sys::file::{self, Dir};
use crate::sys::proc;
use std::io;
use std::path::{Path, PathBuf};

/// The report's name.
pub const NAME: &str = "REPORT.md";

const KIND: u32 = 0o170_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;

/// What became of the report.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// It is here, a regular file within the bounds.
    At(PathBuf),
    /// There is none, or it is none that can be read: why, as a clause.
    No(String),
}

/// Just before the box: makes the work directory where missing, removes an old report, names what looks like a secret.
pub fn prepare(spec: &Spec, show: &mut Show) -> Result<(), Error> {
    let on = || spec.workdir.display().to_string();
    if spec.make_workdir {
        let cannot = |e| Error::wrong("make", on(), e).remedy("is a link that leads nowhere in its place?");
        make(&spec.workdir, spec.user).map_err(cannot)?;
    }
    let dir = open(&spec.workdir).map_err(|e| Error::wrong("open", on(), e))?;
    if wanted(spec) {
        // unlink: a link of that name goes, what it leads to stays.
        dir.remove(NAME).map_err(|e| {
            Error::wrong("remove the old report", spec.workdir.join(NAME).display().to_string(), e)
        })?;
    }
    let names = dir.names().map_err(|e| Error::wrong("read", on(), e))?;
    let bare: Vec<String> =
        names.into_iter().filter(|n| secret_shaped(n) && !spec.masks.contains(n)).collect();
    if !bare.is_empty() {
        show.note(&format!(
            "the agent can read {} in the work directory; --mask PATH hides a file",
            bare.join(", ")
        ));
    }
    Ok(())
}

/// Without the instruction and without `-o` nobody asked for a report, and a file of that name is the project's own.
pub fn wanted(spec: &Spec) -> bool {
    spec.report_instruction || spec.report_to.is_some()
}

fn open(path: &Path) -> io::Result<Dir> {
    #[expect(
        clippy::disallowed_methods,
        reason = "FILE-51 the work directory, for the report and for set-id bits"
    )]
    Dir::open(path)
}

/// Makes the directory; as root only the last part is given away.
fn make(path: &Path, user: (u32, u32)) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "FILE-52 the work directory is made")]
    Dir::make_all(path, 0o755)?;
    match (proc::ids().0, path.parent(), path.file_name().and_then(|n| n.to_str())) {
        (0, Some(parent), Some(name)) => {
            #[expect(
                clippy::disallowed_methods,
                reason = "FILE-53 the work directory made by root is given away"
            )]
            let above = Dir::open(parent)?;
            above.give(name, user.0, user.1)
        }
        _ => Ok(()),
    }
}

/// After the box is dead: is there a report, and is it one? Copies it to `-o`.
pub fn collect(spec: &Spec) -> Result<Report, Error> {
    if !wanted(spec) {
        return Ok(Report::No("nobody asked for a report".into()));
    }
    let on = spec.workdir.join(NAME);
    let bytes = match read(&spec.workdir) {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Report::No(why)),
    };
    let Some(to) = &spec.report_to else { return Ok(Report::At(on)) };
    write(to, &bytes).map_err(|e| Error::wrong("write the report to", to.display().to_string(), e))?;
    Ok(Report::At(to.clone()))
}

/// The report's bytes, or why there are none.
fn read(workdir: &Path) -> Result<Vec<u8>, String> {
    let dir = open(workdir).map_err(|e| format!("the work directory cannot be opened: {e}"))?;
    let facts = match dir.facts(NAME) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(format!("the agent wrote no {NAME}")),
        other => other.map_err(|e| format!("{NAME} cannot be looked at: {e}"))?,
    };
    match facts.mode & KIND {
        LINK => return Err(format!("{NAME} is refused: it is a link")),
        REGULAR => {}
        _ => return Err(format!("{NAME} is refused: it is not a regular file")),
    }
    if facts.links != 1 {
        return Err(format!("{NAME} is refused: it has {} names", facts.links));
    }
    if facts.size > limits::REPORT_BYTES {
        return Err(format!("{NAME} is refused: it has {} bytes, over {}", facts.size, limits::REPORT_BYTES));
    }
    dir.read(NAME, limits::REPORT_BYTES).map_err(|e| format!("{NAME} cannot be read: {e}"))
}

/// Before anything starts: `-o` and `--stats-file` can be written as far as can be told. A run is too dear to learn it at its end.
pub fn check(spec: &Spec) -> Result<(), Error> {
    for to in [&spec.report_to, &spec.stats_file].into_iter().flatten() {
        destination(to).map_err(|e| Error::wrong("write to", to.display().to_string(), e))?;
    }
    Ok(())
}

/// Writes a file of the caller's, whole or not at all; a link in its place is refused, not followed.
pub fn write(to: &Path, bytes: &[u8]) -> io::Result<()> {
    let (dir, name) = destination(to)?;
    dir.replace(name, bytes, 0o600)
}

fn destination(to: &Path) -> io::Result<(Dir, &str)> {
    let (Some(parent), Some(name)) = (to.parent(), to.file_name().and_then(|n| n.to_str())) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-54 the directory of -o or --stats-file")]
    let real = file::real_path(parent)?;
    #[expect(clippy::disallowed_methods, reason = "FILE-55 the directory of -o or --stats-file, opened")]
    let dir = Dir::open(&real)?;
    match dir.facts(name) {
        Ok(facts) if facts.mode & KIND != REGULAR => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "something is there that is no regular file"))
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok((dir, name)),
    }
}

/// Clears set-uid and set-gid bits below the work directory and the writable mounts: the box cannot make any, but a directory
/// may come with some. Returns what was changed, and what could not be looked at.
pub fn clear_set_id(spec: &Spec) -> (Vec<String>, Vec<String>) {
    let (mut cleared, mut unseen) = (Vec::new(), Vec::new());
    let mounts = spec.mounts.iter().filter(|m| !m.readonly).map(|m| m.host.as_path());
    for place in std::iter::once(spec.workdir.as_path()).chain(mounts) {
        match open(place).and_then(|dir| dir.clear_set_id(limits::SET_ID_ENTRIES)) {
            Ok((found, cut)) => {
                cleared.extend(found.iter().map(|p| place.join(p).display().to_string()));
                if cut {
                    unseen.push(format!("{}: not all of it was looked at", place.display()));
                }
            }
            Err(e) => unseen.push(format!("{}: {e}", place.display())),
        }
    }
    (cleared, unseen)
}

/// Names that commonly hold secrets. A warning's list: it stops nobody.
fn secret_shaped(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let exact = [
        "id_rsa",
        "id_ed25519",
        "id_ecdsa",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        "credentials",
        "credentials.json",
    ];
    let ends = [".pem", ".key", ".p12", ".pfx", ".keystore", ".jks"];
    let template = [".example", ".sample", ".template", ".dist"].iter().any(|e| lower.ends_with(e));
    !template
        && (lower.starts_with(".env")
            || exact.contains(&lower.as_str())
            || ends.iter().any(|e| lower.ends_with(e)))
}

#[cfg(test)]
mod tests {
    use super::secret_shaped;

    #[test]
    fn key_shaped_names() {
        for yes in [".env", ".env.local", ".ENV", "server.key", "id_ed25519", "cert.PEM", ".npmrc"] {
            assert!(secret_shaped(yes), "{yes}");
        }
        for no in ["env", "keys.md", "README.md", ".env.example", "monkey"] {
            assert!(!secret_shaped(no), "{no}");
        }
    }
}
