//! What a relay may still touch once it has what it needs. Called by `start` and `foreground`, before the first byte of the network.

use crate::error::Error;
use crate::relay::start::Upstream;
use crate::sys::file::Dir;
use crate::sys::{confine, file, proc};
use std::path::PathBuf;

/// Gives up files, programs and sockets. While there is one thread, because the kernel confines threads.
pub fn confined(upstream: &Upstream, bodies: Option<&Dir>) -> Result<Vec<String>, Error> {
    let threads = proc::threads().map_err(|e| Error::fault("count", "threads", e))?;
    if threads != 1 {
        return Err(Error::fault("confine", "the relay", format!("{threads} threads run already")));
    }
    confine::relay(&rules(upstream), bodies).map_err(|e| Error::fault("confine", "the relay", e))
}

/// Without TLS the relay opens nothing at all. With it, openssl and what openssl reads: its libraries, the system's policy, and
/// the authorities (the two directories under `/usr` are where the links in `/etc/ssl/certs` lead).
fn rules(upstream: &Upstream) -> confine::Relay {
    let there = |paths: &[&str]| -> Vec<PathBuf> {
        #[expect(
            clippy::disallowed_methods,
            reason = "FILE-20 which of the fixed paths exist, before confinement"
        )]
        let exists = |p: &PathBuf| file::facts(p).is_ok();
        paths.iter().map(PathBuf::from).filter(exists).collect()
    };
    let ports = vec![upstream.port];
    if !upstream.tls {
        return confine::Relay { read: Vec::new(), execute: Vec::new(), write: Vec::new(), ports };
    }
    let loaders = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ];
    let mut execute = there(&loaders);
    execute.push(PathBuf::from(&upstream.openssl));
    let mut read = there(&[
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/etc/ld.so.cache",
        "/etc/ssl",
        "/etc/pki",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
    ]);
    read.extend(upstream.ca_file.iter().map(PathBuf::from));
    confine::Relay { read, execute, write: there(&["/dev/null"]), ports }
}
