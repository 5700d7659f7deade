//! `--log-bodies`: whole bodies of requests as they go upstream and of answers as they come, gzip, each in a file named by the SHA-256
//! of what it holds unpacked. The directory was opened before confinement, which lets the relay make and rename files in it and
//! nothing else. A body is on the disk before the record that names it is written.

use crate::limits;
use crate::relay::body_words;
use crate::relay::refuse::Refusal;
use crate::relay::serving::Serving;
use crate::sys::file::Dir;
use crate::sys::fresh::Fresh;
use crate::wire::digest::Digest;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the directory beside the log.
pub const DIRECTORY: &str = "bodies";

/// What a file takes of a disk at least.
const BLOCK: u64 = 4096;

/// A body that `--log-bodies` kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Number of its call.
    pub call: u64,
    /// Its length.
    pub bytes: u64,
    /// `body_words::words` of it.
    pub words: String,
    /// Its name.
    pub digest: String,
}

impl Kept {
    /// The line on standard error.
    pub fn line(&self) -> String {
        let tenths = self.bytes.saturating_mul(10) / 1024;
        let (call, words, digest) = (self.call, &self.words, &self.digest);
        format!("body {call:03} {}.{}KB {words} -> {}/{digest}.gz", tenths / 10, tenths % 10, DIRECTORY)
    }
}

/// Where bodies are kept, and how much of them so far.
pub struct Bodies {
    dir: Dir,
    bytes: AtomicU64,
    most: u64,
}

/// A body on its way into its file.
pub struct Body<'b> {
    of: &'b Bodies,
    to: GzEncoder<Fresh<'b>>,
    digest: Digest,
    bytes: u64,
    failed: Option<io::Error>,
}

/// Keeps the body of a request that is about to go upstream, with `--log-bodies`; its call has no number yet.
pub fn request(relay: &Serving, method: &str, pieces: &[&[u8]]) -> Result<Option<Kept>, Refusal> {
    let Some(bodies) = relay.bodies.as_ref().filter(|_| method == "POST") else {
        return Ok(None);
    };
    let digest = bodies.keep(pieces).map_err(|e| {
        relay.unkept(&e);
        Refusal::new(503, "the call's body cannot be kept, so it is not made")
    })?;
    let whole = pieces.concat();
    let bytes = u64::try_from(whole.len()).unwrap_or(u64::MAX);
    Ok(Some(Kept { call: 0, bytes, words: body_words::words(&whole), digest }))
}

impl Bodies {
    /// Of a directory that is there.
    pub fn new(dir: Dir) -> Bodies {
        Bodies { dir, bytes: AtomicU64::new(0), most: limits::LOG_BODIES_BYTES }
    }

    /// A body that comes in pieces.
    pub fn begin(&self) -> io::Result<Body<'_>> {
        self.count(BLOCK)?;
        let to = GzEncoder::new(Fresh::new(&self.dir)?, Compression::fast());
        Ok(Body { of: self, to, digest: Digest::default(), bytes: 0, failed: None })
    }

    /// So much more is kept.
    fn count(&self, more: u64) -> io::Result<()> {
        if self.bytes.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= self.most {
            return Ok(());
        }
        let most = self.most;
        Err(io::Error::new(io::ErrorKind::StorageFull, format!("{most} bytes are kept already")))
    }

    /// A body that is here; its name.
    pub fn keep(&self, pieces: &[&[u8]]) -> io::Result<String> {
        let mut body = self.begin()?;
        pieces.iter().for_each(|piece| body.push(piece));
        body.done()
    }
}

impl Body<'_> {
    /// The next of it. What is longer than `limits::LOG_BODY_BYTES` is kept to that length. A failure is told by `done`.
    pub fn push(&mut self, piece: &[u8]) {
        let room = limits::LOG_BODY_BYTES.saturating_sub(self.bytes);
        let piece = piece.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(piece);
        if piece.is_empty() || self.failed.is_some() {
            return;
        }
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(length);
        self.digest.update(piece);
        self.failed = self.of.count(length).and_then(|()| self.to.write_all(piece)).err();
    }

    /// On the disk under its name, which is given back.
    pub fn done(self) -> io::Result<String> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        let name = self.digest.hex();
        self.to.finish()?.name(&format!("{name}.gz"))?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Bodies};
    use crate::sys::file::Dir;
    use std::sync::atomic::AtomicU64;

    /// What is kept is bounded in sum, small and empty bodies too.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make their own files and threads")]
    fn many_small_bodies_are_bounded() {
        let path = std::env::temp_dir().join(format!("sanduk-bodies-{}", std::process::id()));
        let Ok(dir) = Dir::make_all(&path, 0o700) else { panic!("no directory") };
        let bodies = Bodies { dir, bytes: AtomicU64::new(0), most: 10 * BLOCK };
        let kept = (0u8..100).take_while(|n| bodies.keep(&[&[*n; 8]]).is_ok()).count();
        assert_eq!(kept, 9);
        let fresh = Bodies { bytes: AtomicU64::new(0), ..bodies };
        let kept = (0u8..100).take_while(|_| fresh.keep(&[]).is_ok()).count();
        assert_eq!(kept, 10);
        let removed = std::fs::remove_dir_all(&path);
        assert!(removed.is_ok());
    }
}
