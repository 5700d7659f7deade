//! What a relay gives up before its first byte of the network: by what it calls, the files, programs and ports that it keeps. Called by
//! `start` and `foreground`.

use crate::error::Error;
use crate::relay::start::Upstream;
use crate::sys::file::Dir;
use crate::sys::{confine, file, proc};
use std::path::PathBuf;

/// Gives up files, programs and sockets; into `bodies` it may still put files. While there is one thread, because the kernel confines threads.
pub fn confined(upstream: &Upstream, bodies: Option<&Dir>) -> Result<Vec<String>, Error> {
    let threads = proc::threads().map_err(|e| Error::fault("count", "threads", e))?;
    if threads != 1 {
        return Err(Error::fault("confine", "the relay", format!("{threads} threads run already")));
    }
    confine::relay(&rules(upstream), bodies).map_err(|e| Error::fault("confine", "the relay", e))
}

/// Without TLS, or with stunnel's, the relay opens nothing at all. With openssl's, openssl and what openssl reads: its libraries, the system's policy, and
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
    let ports = vec![upstream.proxy.as_ref().map_or(upstream.port, |proxy| proxy.port)];
    let none =
        confine::Relay { read: Vec::new(), execute: Vec::new(), write: Vec::new(), ports, unix: false };
    if upstream.stunnel.is_some() {
        return confine::Relay { ports: Vec::new(), unix: true, ..none };
    }
    if !upstream.tls {
        return none;
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
    confine::Relay { read, execute, write: there(&["/dev/null"]), ..none }
}
