//! What `sanduk audit` reads, plain or gzip: bounded, from a place that the caller named. Called by `audit`, `verify`.

use crate::error::Error;
use crate::limits;
use crate::sys::file;
use crate::wire::digest::Digest;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// A log, unpacked where it is gzip. What it may inflate to is bounded by who reads it.
pub fn log(path: &Path) -> Result<Box<dyn Read>, Error> {
    let bad = |e: io::Error| Error::wrong("read", path.display().to_string(), e);
    #[expect(clippy::disallowed_methods, reason = "FILE-198 the call log given to audit")]
    let opened = file::open_named(path).map_err(bad)?;
    unpacked(File::from(opened)).map_err(bad)
}

/// A run's receipt or its `--stats-file`.
pub fn receipt(path: &Path) -> Result<Vec<u8>, Error> {
    #[expect(clippy::disallowed_methods, reason = "FILE-199 --receipt of audit verify")]
    let bytes = file::read_named(path, limits::RECEIPT_BYTES);
    bytes.map_err(|e| Error::wrong("read", path.display().to_string(), e))
}

/// SHA-256 of what a kept body unpacks to.
pub fn body(path: &Path) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "FILE-197 a body that --log-bodies kept")]
    let opened = file::open_named(path)?;
    let from = BufReader::new(File::from(opened));
    let most = limits::LOG_BODY_BYTES.saturating_add(1);
    let mut from = MultiGzDecoder::new(from).take(most);
    let (mut digest, mut piece) = (Digest::default(), vec![0; limits::COPY_BYTES]);
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(digest.hex()),
            n => digest.update(piece.get(..n).unwrap_or_default()),
        }
    }
}

/// gzip by its first two bytes; no record begins with them.
fn unpacked(from: File) -> io::Result<Box<dyn Read>> {
    let mut from = BufReader::new(from);
    match from.fill_buf()? {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(from))),
        _ => Ok(Box::new(from)),
    }
}
