//! The doors to the kernel: programs, streams, threads, files. What needs a process of its own (filters, users, signals) is in
//! `tests/confine`.
#![expect(clippy::disallowed_methods, reason = "tests")]

mod files;
mod programs;
mod streams;
mod threads;
mod trees;
mod unix;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt;
use sanduk::sys::exec::{self, Ended, Feed, Order};
use sanduk::sys::file::{self, Dir};
use sanduk::sys::net::{self, Conn, Listener};
use sanduk::sys::{proc, serve};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Long enough for a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);
/// A wait that is meant to run out.
const SHORT: Duration = Duration::from_millis(50);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    /// In memory where the host has that: thousands of directories take minutes on a busy disk.
    fn fast() -> Scratch {
        let memory = Path::new("/dev/shm");
        if file::facts(memory).is_ok_and(|f| f.mode & 0o2 != 0) {
            Scratch::below(memory)
        } else {
            Scratch::new()
        }
    }

    fn below(parent: &Path) -> Scratch {
        let path = parent.join(format!("sanduk-sys-{}", proc::random_hex(8).unwrap()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn open(&self) -> Dir {
        Dir::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let _ = Dir::open(self.0.parent().unwrap()).and_then(|d| d.remove_tree(name));
    }
}

fn is_root() -> bool {
    proc::ids().0 == 0
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn tcp_pair() -> (Conn, Conn) {
    let listener = net::listen_tcp(local(0)).unwrap();
    let a = net::connect_tcp(listener.address().unwrap(), PATIENCE).unwrap();
    (a, listener.accept().unwrap())
}

fn read_to_end(conn: &Conn) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0u8; 4096]);
    loop {
        match conn.read(&mut buf, PATIENCE).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

fn order(program: &str, args: &[&str]) -> Order {
    Order {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Inherit,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    }
}

fn output(order: Order) -> String {
    let mut child = exec::start(order).unwrap();
    let text = String::from_utf8(read_to_end(&Conn::new(child.stdout().unwrap()))).unwrap();
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
    text
}
