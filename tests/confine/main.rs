//! What a role gives up, tried from inside a process that gave it up: both filters, Landlock, `harden`, `become_user`, signals,
//! the overwritten secret. Has no libtest harness: a role has one thread, and libtest runs every test on a second one. Each test
//! starts this program again with `CHILD` set, and judges the lines that the child prints.
#![expect(clippy::disallowed_methods, reason = "tests")]

mod calls;
mod real;
mod relay;
mod roles;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sanduk::sys::exec::{self, Child, Ended, Feed, Order};
use sanduk::sys::{confine, env, file, net, proc};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which of the children below to be.
const CHILD: &str = "SANDUK_TEST_CHILD";
/// Long enough for a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

type Lines = BTreeMap<String, String>;

const TESTS: &[(&str, fn())] = &[
    ("relay_filter_and_landlock", relay::relay_filter_and_landlock),
    ("box_b3_the_relays_own_rules_without_tls", real::box_b3_the_relays_own_rules_without_tls),
    ("box_b3_the_relays_own_rules_with_tls", real::box_b3_the_relays_own_rules_with_tls),
    ("relay_filter_on_raw_calls", calls::relay_filter_on_raw_calls),
    ("box_b5_families", calls::box_b5_families),
    ("box_b4_set_id_bits", calls::box_b4_set_id_bits),
    ("box_b35_kernel_doors", calls::box_b35_kernel_doors),
    ("box_filter_lets_tools_work", calls::box_filter_lets_tools_work),
    ("box_b15_confine_refuses_a_second_thread", calls::box_b15_confine_refuses_a_second_thread),
    ("box_b9_secret_overwritten_in_place", roles::box_b9_secret_overwritten_in_place),
    ("box_b10_harden", roles::box_b10_harden),
    ("box_b2_become_user", roles::box_b2_become_user),
    ("environment_is_read_by_name", roles::environment_is_read_by_name),
    ("limits_are_lowered_only", roles::limits_are_lowered_only),
    ("serving_survives_a_shortage_of_descriptors", roles::serving_survives_a_shortage_of_descriptors),
    ("die_with_parent", roles::die_with_parent),
    ("signals_are_caught_even_where_ignored", roles::signals_are_caught_even_where_ignored),
    ("ignored_signals_end_nothing", roles::ignored_signals_end_nothing),
    ("box_b7_reap_takes_children_and_orphans", roles::box_b7_reap_takes_children_and_orphans),
];

fn main() -> std::process::ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        return child(&role);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| say(&format!("{name}: test")));
        return std::process::ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> =
        args.iter().filter(|a| !a.starts_with('-') && a.parse::<u32>().is_err()).collect();
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        let good = std::panic::catch_unwind(test).is_ok();
        failed += u8::from(!good);
        say(&format!("test {name} ... {}", if good { "ok" } else { "FAILED" }));
    }
    std::process::ExitCode::from(failed.min(1))
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // A reader that left is no fault of the test.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

// ---- the parent's side ----

/// Starts this program as the child `role`.
fn start(role: &str, more: &[(&str, &str)], inherit: Vec<OwnedFd>) -> Child {
    let mut env: Vec<(String, OsString)> = vec![
        (CHILD.into(), role.into()),
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
        ("HOME".into(), std::env::var_os("HOME").unwrap_or_default()),
    ];
    env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())));
    exec::start(Order {
        program: exec::own().unwrap(),
        args: Vec::new(),
        env,
        stdin: Feed::Pipe,
        stdout: Feed::Pipe,
        stderr: Feed::Inherit,
        inherit,
        user: None,
        cwd: "/".into(),
        own_group: true,
    })
    .unwrap()
}

fn to_end(child: &mut Child) -> String {
    let out = net::Conn::new(child.stdout().unwrap());
    let (mut bytes, mut buf) = (Vec::new(), [0u8; 4096]);
    loop {
        match out.read(&mut buf, PATIENCE).unwrap() {
            0 => break,
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// One line, without its end; empty at the end of the stream.
fn line(out: &net::Conn) -> String {
    let (mut text, mut byte) = (Vec::new(), [0u8; 1]);
    while out.read(&mut byte, PATIENCE).unwrap() == 1 && byte[0] != b'\n' {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

/// The `name=result` lines of a child that must end with 0.
fn lines(mut child: Child) -> Lines {
    let text = to_end(&mut child);
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)), "{text}");
    text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[track_caller]
fn expect(lines: &Lines, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        assert_eq!(lines.get(*name).map(String::as_str), Some(*value), "{name} in {lines:#?}");
    }
}

// ---- the child's side ----

fn child(role: &str) -> std::process::ExitCode {
    match role {
        "relay" => relay::relay_child(),
        "real" => real::real_child(),
        "raw" => calls::python_child(true),
        "box" => calls::python_child(false),
        "tools" => calls::tools_child(),
        "threads" => calls::threads_child(),
        "secret" => roles::secret_child(),
        "harden" => roles::harden_child(),
        "user" => roles::user_child(),
        "middle" => roles::middle_child(),
        "orphan" => roles::orphan_child(),
        "catch" => roles::catch_child(),
        "ignore" => roles::ignore_child(),
        "reap" => roles::reap_child(),
        "environment" => roles::environment_child(),
        "limits" => roles::limits_child(),
        "shortage" => roles::shortage_child(),
        other => panic!("no child {other}"),
    }
    std::process::ExitCode::SUCCESS
}

fn tell(name: &str, result: Result<impl Sized, impl Into<io::Error>>) {
    let result = result.map_err(Into::into);
    say(&format!("{name}={}", result.map_or_else(|e: io::Error| word(&e), |_| "ok".to_owned())));
}

fn word(e: &io::Error) -> String {
    let names = [
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::NOENT, "ENOENT"),
        (Errno::MFILE, "EMFILE"),
        (Errno::FBIG, "EFBIG"),
    ];
    let known = names.iter().find(|(n, _)| Some(n.raw_os_error()) == e.raw_os_error());
    known.map_or_else(|| e.to_string(), |(_, w)| (*w).to_owned())
}

fn number(name: &str) -> u16 {
    std::env::var(name).unwrap().parse().unwrap()
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn order(program: &str, args: &[&str]) -> Order {
    Order {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Null,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    }
}

/// Runs a program to its end; its output.
fn run(program: &str, args: &[&str]) -> io::Result<String> {
    let mut child = exec::start(order(program, args))?;
    let text = to_end(&mut child);
    match child.wait(PATIENCE)? {
        Some(Ended::Code(0)) => Ok(text),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

/// A directory of the test's own, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("sanduk-confine-{}", proc::random_hex(8).unwrap()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
