//! Files and directories, without following links where the place may belong to an enemy. Writes that matter are
//! made under another name, synced, then renamed into place. Trees (removal, the walk for set-id bits) stand in `tree`.

use crate::limits;
use crate::sys::net::Conn;
use crate::sys::proc;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// An open directory; every name given to it is a single component.
pub struct Dir {
    fd: OwnedFd,
}

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `S_IFMT` part and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Hard links.
    pub links: u64,
}

/// A lock that ends with this value or with the process. The descriptor is close-on-exec: flock belongs to the open file, so a
/// child that inherited it would hold the lock after its owner is gone.
pub struct Lock {
    fd: OwnedFd,
}

/// How a directory is opened: for reading its entries, never through a link.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file is opened: never through a link, never waiting for a fifo's other end.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Dir {
    /// Opens an existing directory; the last component may not be a link.
    pub fn open(path: &Path) -> io::Result<Dir> {
        opened(path)
    }

    /// Opens, making missing components with `mode` (existing ones are left alone).
    pub fn make_all(path: &Path, mode: u32) -> io::Result<Dir> {
        let mut missing: Vec<&Path> = Vec::new();
        for part in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
            match rustix::fs::statat(CWD, part, AtFlags::empty()) {
                Ok(_) => break,
                Err(Errno::NOENT) => missing.push(part),
                Err(e) => return Err(e.into()),
            }
        }
        for part in missing.into_iter().rev() {
            match rustix::fs::mkdirat(CWD, part, bits(mode & 0o700)) {
                // Widened only when it is surely the one made here; the umask has no say.
                Ok(()) => rustix::fs::fchmod(&opened(part)?.fd, bits(mode))?,
                // Somebody else made it meanwhile.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        opened(path)
    }

    /// Makes a subdirectory (must not exist) and opens it.
    pub fn make(&self, name: &str, mode: u32) -> io::Result<Dir> {
        rustix::fs::mkdirat(&self.fd, component(name)?, bits(mode & 0o700))?;
        let made = self.below(name)?;
        rustix::fs::fchmod(&made.fd, bits(mode))?;
        Ok(made)
    }

    /// Makes a subdirectory, or opens it where it is there.
    pub fn make_or_open(&self, name: &str, mode: u32) -> io::Result<Dir> {
        match self.make(name, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.below(name),
            made => made,
        }
    }

    /// Opens an existing subdirectory, no link.
    pub fn below(&self, name: &str) -> io::Result<Dir> {
        Ok(Dir { fd: rustix::fs::openat(&self.fd, component(name)?, DIRECTORY, Mode::empty())? })
    }

    /// Facts of an entry itself (a link is not followed).
    pub fn facts(&self, name: &str) -> io::Result<Facts> {
        Ok(facts_of(&rustix::fs::statat(&self.fd, component(name)?, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Reads a regular file of at most `most` bytes: no link, no blocking on a fifo; larger is an error.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let fd = rustix::fs::openat(&self.fd, component(name)?, OFlags::RDONLY | PLAIN, Mode::empty())?;
        regular(&fd)?;
        read_all(&fd, most)
    }

    /// Makes a new file (exclusive), writes, syncs file and directory.
    pub fn write_new(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.create(component(name)?, bytes, mode)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// Writes under a temporary name, syncs, renames over `name`, syncs the directory.
    pub fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = component(name)?;
        let temporary = format!(".new-{}", proc::random_hex(16)?);
        self.create(&temporary, bytes, mode)?;
        if let Err(e) = rustix::fs::renameat(&self.fd, &temporary, &self.fd, name) {
            self.remove(&temporary)?;
            return Err(e.into());
        }
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// A new file with these bytes, on disk; nothing is left of it where that fails.
    fn create(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let fd = rustix::fs::openat(&self.fd, name, flags, bits(mode & 0o700))?;
        let written = write_all(&fd, bytes)
            .and_then(|()| Ok(rustix::fs::fchmod(&fd, bits(mode))?))
            .and_then(|()| Ok(rustix::fs::fsync(&fd)?));
        if written.is_err() {
            self.remove(name)?;
        }
        written
    }

    /// Makes a new file (exclusive). Not synced: for what does not outlive its run.
    pub fn write_unsynced(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let fd = rustix::fs::openat(&self.fd, component(name)?, flags, bits(mode & 0o700))?;
        write_all(&fd, bytes)?;
        Ok(rustix::fs::fchmod(&fd, bits(mode))?)
    }

    /// A new file here with what `from` holds (links are followed, it is the caller's). Not synced: for what does not outlive its run.
    pub fn copy_in(&self, name: &str, from: &Path, mode: u32) -> io::Result<()> {
        let from = rustix::fs::open(from, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let fd = rustix::fs::openat(&self.fd, component(name)?, flags, bits(mode & 0o700))?;
        // std copies in the kernel where it can (copy_file_range).
        let mut to = std::fs::File::from(fd);
        std::io::copy(&mut std::fs::File::from(from), &mut to)?;
        Ok(rustix::fs::fchmod(&to, bits(mode))?)
    }

    /// Opens to read, and to write at the end only, making it with 0600 where missing; no link.
    pub fn append(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | PLAIN;
        let fd = rustix::fs::openat(&self.fd, component(name)?, flags, bits(0o600))?;
        regular(&fd)?;
        Ok(fd)
    }

    /// Takes an exclusive lock on the entry without waiting; `None`: somebody else holds it. The entry, a file or a directory,
    /// must exist: a sweep must not make again what its owner just removed.
    pub fn lock(&self, name: &str) -> io::Result<Option<Lock>> {
        let name = component(name)?;
        loop {
            let fd = rustix::fs::openat(&self.fd, name, OFlags::RDONLY | PLAIN, Mode::empty())?;
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            // The name may have been removed or replaced between open and lock: then this lock is on a file nobody will ask for.
            let held = rustix::fs::fstat(&fd)?;
            let named = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino) {
                return Ok(Some(Lock { fd }));
            }
        }
    }

    /// Renames within this directory and syncs it; fails where `to` exists.
    pub fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (component(from)?, component(to)?);
        rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// Removes a file or link; a missing one is fine.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, component(name)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes a whole tree below `name`, of any depth, following no link; a missing one is fine.
    pub fn remove_tree(&self, name: &str) -> io::Result<()> {
        crate::sys::tree::remove(&self.fd, component(name)?)
    }

    /// Names of the entries, sorted; names that are not UTF-8 are left out.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Owner and group of an entry itself.
    pub fn give(&self, name: &str, uid: u32, gid: u32) -> io::Result<()> {
        use rustix::fs::{Gid, Uid};
        // -1 would mean "leave as it is" to the kernel; rustix has no checked constructor.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::INVAL.into());
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(&self.fd, component(name)?, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Clears set-uid and set-gid on regular files below this directory (no links, no other file systems, at most `most`
    /// entries); returns the paths it changed. The flag is true where the walk was not finished.
    pub fn clear_set_id(&self, most: usize) -> io::Result<(Vec<String>, bool)> {
        crate::sys::tree::clear_set_id(&self.fd, most)
    }
}

impl From<OwnedFd> for Dir {
    /// A directory that was handed over open.
    fn from(fd: OwnedFd) -> Dir {
        Dir { fd }
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> OwnedFd {
        dir.fd
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Lock {
    /// The locked file.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Reads a file the caller named (links are followed, it is theirs), at most `most` bytes; a fifo or descriptor works too, if
/// each piece of it comes within `NAMED_TIME` (`TimedOut`): one that nobody writes to would hold the command up for ever.
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_within(path, most, limits::NAMED_TIME)
}

fn read_within(path: &Path, most: u64, time: Duration) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::RegularFile => read_all(fd, most),
        _ => {
            let conn = Conn::new(fd);
            read_by(|piece| conn.read(piece, time), most)
        }
    }
}

/// Opens for reading a file the caller named, as `read_named`; a directory is an error.
pub fn open_named(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Ok(fd),
    }
}

/// Facts of what a path leads to (links followed).
pub fn facts(path: &Path) -> io::Result<Facts> {
    Ok(facts_of(&rustix::fs::statat(CWD, path, AtFlags::empty())?))
}

/// Bytes that an ordinary user may still write on the file system of a path.
pub fn free(path: &Path) -> io::Result<u64> {
    let s = rustix::fs::statvfs(path)?;
    Ok(s.f_bavail.saturating_mul(s.f_frsize))
}

/// The path without links, `.` and `..`; it must exist.
pub fn real_path(path: &Path) -> io::Result<std::path::PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "FILE-01 canonicalize; callers are listed")]
    std::fs::canonicalize(path)
}

/// `name` as a single component: no `/`, no `.` or `..`, no NUL, not empty.
pub(super) fn component(name: &str) -> io::Result<&str> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file name"));
    }
    Ok(name)
}

/// Reads to the end; more than `most` bytes is an error (`FileTooLarge`).
pub(super) fn read_all(fd: impl AsFd, most: u64) -> io::Result<Vec<u8>> {
    let read = |piece: &mut [u8]| loop {
        match rustix::io::read(&fd, &mut *piece) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    };
    read_by(read, most)
}

fn read_by(mut next: impl FnMut(&mut [u8]) -> io::Result<usize>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0u8; 8192];
    loop {
        let n = match next(&mut piece)? {
            0 => return Ok(bytes),
            n => n,
        };
        if (bytes.len() + n) as u64 > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} bytes")));
        }
        bytes.extend_from_slice(&piece[..n]);
    }
}

/// Takes the exclusive lock on an open file without waiting; false: another open file has it. It ends with the last descriptor of
/// this open file, those of other processes included.
pub fn hold(fd: impl AsFd) -> io::Result<bool> {
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn opened(path: &Path) -> io::Result<Dir> {
    Ok(Dir { fd: rustix::fs::open(path, DIRECTORY, Mode::empty())? })
}

fn regular(fd: &OwnedFd) -> io::Result<()> {
    if FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::RegularFile {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}

fn facts_of(s: &Stat) -> Facts {
    Facts {
        mode: s.st_mode,
        uid: s.st_uid,
        gid: s.st_gid,
        size: s.st_size.unsigned_abs(),
        links: widened(s.st_nlink),
    }
}

/// A link count is 64 bits wide on x86_64 and 32 on aarch64.
fn widened(n: impl Into<u64>) -> u64 {
    n.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell's `<(…)` is, a fifo whose writer comes late, one that nobody writes to, one that has no end.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests")]
    fn a_fifo_is_read_and_not_waited_for_without_end() {
        let place = std::path::PathBuf::from(format!("/tmp/sanduk-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&place).status().unwrap();
        assert!(made.success());
        let read = |most, time| read_within(&place, most, Duration::from_millis(time));
        assert_eq!(read(100, 50).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let late = |bytes: Vec<u8>| {
            let place = place.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                let _ = std::fs::write(place, bytes);
            })
        };
        let writer = late(b"the key\n".to_vec());
        assert_eq!(read(100, 30_000).unwrap(), b"the key\n");
        writer.join().unwrap();
        let writer = late(vec![b'x'; 300_000]);
        assert_eq!(read(100, 30_000).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        writer.join().unwrap();
        std::fs::remove_file(&place).unwrap();
    }
}
