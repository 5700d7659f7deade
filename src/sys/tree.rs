//! Trees that an agent wrote: removing one, and clearing set-id bits in one, of any depth, with few descriptors, through no link
//! and into no mount. `file::Dir` is the only caller. Nothing here recurses.

use crate::limits::DIR_BATCH;
use crate::sys::proc;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes `name` below `parent`. Directories found below the second level are moved up to the first, so the depth never costs
/// descriptors or stack: at any moment the top and one of its subdirectories are open.
pub fn remove(parent: &OwnedFd, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    match rustix::fs::unlinkat(parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // unlink(2) of a directory: EISDIR on Linux, EPERM in POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let top = open_to_empty(parent, &name)?;
    let prefix = proc::random_hex(8)?;
    let mut moved = 0u64;
    loop {
        let batch = entries(&top)?;
        if batch.is_empty() {
            break;
        }
        for entry in batch {
            if removed(&top, &entry)? {
                continue;
            }
            let below = open_to_empty(&top, &entry)?;
            flatten(&top, &below, &prefix, &mut moved)?;
            rustix::fs::unlinkat(&top, &entry, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(rustix::fs::unlinkat(parent, &name, AtFlags::REMOVEDIR)?)
}

/// Empties `below`: files are removed, directories renamed up into `top`.
fn flatten(top: &OwnedFd, below: &OwnedFd, prefix: &str, moved: &mut u64) -> io::Result<()> {
    loop {
        let batch = entries(below)?;
        if batch.is_empty() {
            return Ok(());
        }
        for entry in batch {
            if removed(below, &entry)? {
                continue;
            }
            // The name is ours alone: the prefix was drawn just now. A mount point gives EXDEV or EBUSY and ends the removal.
            let up = format!("{prefix}-{moved}");
            *moved += 1;
            match rustix::fs::renameat(below, &entry, top, &up) {
                // Moving a directory writes its `..`: it must be writable by us.
                Err(Errno::ACCESS) => {
                    open_to_empty(below, &entry)?;
                    rustix::fs::renameat(below, &entry, top, &up)?;
                }
                other => other?,
            }
        }
    }
}

/// Removes the entry where it is no directory.
fn removed(dir: &OwnedFd, entry: &CString) -> io::Result<bool> {
    match rustix::fs::unlinkat(dir, entry, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(e) => {
            // EPERM and EACCES say the same for directories and for files that may not be removed.
            let kind =
                FileType::from_raw_mode(rustix::fs::statat(dir, entry, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
            if kind == FileType::Directory { Ok(false) } else { Err(e.into()) }
        }
    }
}

/// Opens a directory whose entries are to be removed; one whose permissions forbid that is given 0700 first. A mount point is
/// refused: what is mounted there is not ours to empty.
fn open_to_empty(dir: &OwnedFd, entry: &CString) -> io::Result<OwnedFd> {
    let handle = rustix::fs::openat(dir, entry, HANDLE | OFlags::DIRECTORY, Mode::empty())?;
    if mount_point(&handle)? {
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, "something is mounted inside the tree"));
    }
    let s = rustix::fs::fstat(&handle)?;
    if s.st_mode & 0o700 != 0o700 {
        // Where it is not ours the opening below says so.
        let _ = rustix::fs::chmodat(CWD, through(&handle), Mode::RWXU, AtFlags::empty());
    }
    Ok(rustix::fs::openat(dir, entry, DIRECTORY, Mode::empty())?)
}

/// Root of a mount, also of a bind mount of the same file system (statx(2), since Linux 5.8; older kernels do not tell, and there
/// rmdir and rename refuse it).
fn mount_point(dir: &OwnedFd) -> io::Result<bool> {
    match rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE) {
        Ok(s) => Ok(s.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The name of an open O_PATH descriptor, for calls that take none.
fn through(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// At most `DIR_BATCH` names, `.` and `..` left out.
fn entries(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() == DIR_BATCH {
            break;
        }
    }
    Ok(names)
}

/// A directory on the way down: which one it is, and which of its subdirectories are still to be visited.
struct Level {
    device: u64,
    inode: u64,
    name: String,
    left: Vec<CString>,
}

/// See `file::Dir::clear_set_id`. One descriptor walks down and, by `..`, up again; after each step up the directory must be the one
/// it came from, so a tree that is changed meanwhile cannot lead the walk outside.
pub fn clear_set_id(root: &OwnedFd, most: usize) -> io::Result<(Vec<String>, bool)> {
    let mut walk = Walk { changed: Vec::new(), unfinished: false, left: most };
    let mut here = rustix::fs::openat(root, c".", DIRECTORY, Mode::empty())?;
    let device = rustix::fs::fstat(&here)?.st_dev;
    let mut levels = vec![walk.visit(&here, String::new(), &[])?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.left.pop() {
            let Ok(below) = rustix::fs::openat(&here, &name, DIRECTORY, Mode::empty()) else {
                walk.unfinished = true;
                continue;
            };
            // Another file system, or the host's own directory mounted here: not the agent's files.
            if rustix::fs::fstat(&below)?.st_dev != device || mount_point(&below)? {
                continue;
            }
            let name = name.to_string_lossy().into_owned();
            match walk.visit(&below, name, &levels) {
                Ok(level) => levels.push(level),
                Err(_) => {
                    walk.unfinished = true;
                    continue;
                }
            }
            here = below;
        } else {
            levels.pop();
            let Some(up) = levels.last() else { break };
            here = rustix::fs::openat(&here, c"..", DIRECTORY, Mode::empty())?;
            let s = rustix::fs::fstat(&here)?;
            if (s.st_dev, s.st_ino) != (up.device, up.inode) {
                walk.unfinished = true;
                break;
            }
        }
    }
    Ok((walk.changed, walk.unfinished))
}

struct Walk {
    changed: Vec<String>,
    unfinished: bool,
    /// Entries that may still be looked at.
    left: usize,
}

impl Walk {
    /// Clears the bits on the files of one directory and lists its subdirectories.
    fn visit(&mut self, dir: &OwnedFd, name: String, above: &[Level]) -> io::Result<Level> {
        let s = rustix::fs::fstat(dir)?;
        let mut level = Level { device: s.st_dev, inode: s.st_ino, name, left: Vec::new() };
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            let file = entry.file_name();
            if file == c"." || file == c".." {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                self.unfinished = true;
                break;
            };
            self.left = left;
            let Ok(s) = rustix::fs::statat(dir, file, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            match FileType::from_raw_mode(s.st_mode) {
                FileType::Directory => level.left.push(file.to_owned()),
                FileType::RegularFile if s.st_mode & 0o6000 != 0 => match clear(dir, file) {
                    Ok(()) => self.changed.push(path(above, &level.name, &file.to_string_lossy())),
                    Err(_) => self.unfinished = true,
                },
                _ => {}
            }
        }
        Ok(level)
    }
}

/// Takes the bits off the file that `name` is now, which must still be a regular one.
fn clear(dir: impl AsFd, name: &std::ffi::CStr) -> io::Result<()> {
    let handle = rustix::fs::openat(dir, name, HANDLE, Mode::empty())?;
    let s = rustix::fs::fstat(&handle)?;
    if FileType::from_raw_mode(s.st_mode) == FileType::RegularFile {
        let mode = Mode::from_bits_truncate(s.st_mode & 0o1777);
        rustix::fs::chmodat(CWD, through(&handle), mode, AtFlags::empty())?;
    }
    Ok(())
}

fn path(above: &[Level], dir: &str, file: &str) -> String {
    let mut path = String::new();
    for part in above.iter().map(|l| l.name.as_str()).chain([dir]).filter(|p| !p.is_empty()) {
        path.push_str(part);
        path.push('/');
    }
    path + file
}
