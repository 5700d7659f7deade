//! Files and directories, without following links where the place may belong to an enemy. Writes that matter are
//! made under another name, synced, then renamed into place.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

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

/// A lock that ends with this value or with the process. The descriptor is close-on-exec.
pub struct Lock {
    fd: OwnedFd,
}

impl Dir {
    /// Opens an existing directory; the last component may not be a link.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let _ = path;
        todo!()
    }

    /// Opens, making missing components with `mode` (existing ones are left alone).
    pub fn make_all(path: &Path, mode: u32) -> io::Result<Dir> {
        let _ = (path, mode);
        todo!()
    }

    /// Makes a subdirectory (must not exist) and opens it.
    pub fn make(&self, name: &str, mode: u32) -> io::Result<Dir> {
        let _ = (name, mode, &self.fd);
        todo!()
    }

    /// Opens an existing subdirectory, no link.
    pub fn below(&self, name: &str) -> io::Result<Dir> {
        let _ = name;
        todo!()
    }

    /// Facts of an entry itself (a link is not followed).
    pub fn facts(&self, name: &str) -> io::Result<Facts> {
        let _ = name;
        todo!()
    }

    /// Reads a regular file of at most `most` bytes: no link, no blocking on a fifo; larger is an error.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let _ = (name, most);
        todo!()
    }

    /// Makes a new file (exclusive), writes, syncs file and directory.
    pub fn write_new(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let _ = (name, bytes, mode);
        todo!()
    }

    /// Writes under a temporary name, syncs, renames over `name`, syncs the directory.
    pub fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let _ = (name, bytes, mode);
        todo!()
    }

    /// Opens for append only, making it with 0600 where missing; no link.
    pub fn append(&self, name: &str) -> io::Result<OwnedFd> {
        let _ = name;
        todo!()
    }

    /// Takes an exclusive lock on the entry without waiting; `None`: somebody else holds it.
    pub fn lock(&self, name: &str) -> io::Result<Option<Lock>> {
        let _ = name;
        todo!()
    }

    /// Renames within this directory and syncs it; fails where `to` exists.
    pub fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let _ = (from, to);
        todo!()
    }

    /// Removes a file or link; a missing one is fine.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let _ = name;
        todo!()
    }

    /// Removes a whole tree below `name`, of any depth, following no link; a missing one is fine.
    pub fn remove_tree(&self, name: &str) -> io::Result<()> {
        let _ = name;
        todo!()
    }

    /// Names of the entries, sorted; names that are not UTF-8 are left out.
    pub fn names(&self) -> io::Result<Vec<String>> {
        todo!()
    }

    /// Owner and group of an entry itself.
    pub fn give(&self, name: &str, uid: u32, gid: u32) -> io::Result<()> {
        let _ = (name, uid, gid);
        todo!()
    }

    /// Clears set-uid and set-gid on regular files below this directory (no links, no other file systems, at most `most`
    /// entries); returns the paths it changed. The flag is true where the walk was not finished.
    pub fn clear_set_id(&self, most: usize) -> io::Result<(Vec<String>, bool)> {
        let _ = most;
        todo!()
    }
}

impl Lock {
    /// The locked file.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Reads a file the caller named (links are followed, it is theirs), at most `most` bytes; a fifo or descriptor works too.
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let _ = (path, most);
    todo!()
}

/// Facts of what a path leads to (links followed).
pub fn facts(path: &Path) -> io::Result<Facts> {
    let _ = path;
    todo!()
}

/// The path without links, `.` and `..`; it must exist.
pub fn real_path(path: &Path) -> io::Result<std::path::PathBuf> {
    let _ = path;
    todo!()
}
