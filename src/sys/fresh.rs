//! A file that gets its name when it is whole and on the disk; until then it has one of its own (`.new-…`), and dropped it is gone.
//! A crash leaves at worst the latter. Called where bodies are kept.

use crate::sys::file::{Dir, component};
use crate::sys::proc;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// See the file's head.
pub struct Fresh<'d> {
    dir: &'d Dir,
    name: String,
    fd: OwnedFd,
    named: bool,
}

impl<'d> Fresh<'d> {
    /// A new file of its user alone, in this directory.
    pub fn new(dir: &'d Dir) -> io::Result<Fresh<'d>> {
        let name = format!(".new-{}", proc::random_hex(16)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir.as_fd(), &name, flags, Mode::from_bits_truncate(0o600))?;
        Ok(Fresh { dir, name, fd, named: false })
    }

    /// Syncs it, gives it its name (what had it before is replaced), and syncs the directory.
    pub fn name(mut self, name: &str) -> io::Result<()> {
        rustix::fs::fsync(&self.fd)?;
        rustix::fs::renameat(self.dir.as_fd(), &self.name, self.dir.as_fd(), component(name)?)?;
        self.named = true;
        Ok(rustix::fs::fsync(self.dir.as_fd())?)
    }
}

impl Write for Fresh<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.fd, bytes) {
                Err(Errno::INTR) => {}
                wrote => return Ok(wrote?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if !self.named {
            let _ = rustix::fs::unlinkat(self.dir.as_fd(), &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fresh;
    use crate::sys::file::Dir;
    use std::io::Write;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests")]
    fn named_when_whole_or_gone() {
        let path = std::env::temp_dir().join(format!("sanduk-fresh-{}", std::process::id()));
        let dir = Dir::make_all(&path, 0o700).unwrap();
        let mut kept = Fresh::new(&dir).unwrap();
        kept.write_all(b"abc").unwrap();
        kept.name("a").unwrap();
        Fresh::new(&dir).unwrap().write_all(b"x").unwrap();
        assert!(Fresh::new(&dir).unwrap().name("../b").is_err());
        assert_eq!(dir.names().unwrap(), ["a"]);
        assert_eq!(dir.read("a", 9).unwrap(), b"abc");
        assert_eq!(dir.facts("a").unwrap().mode & 0o777, 0o600);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
