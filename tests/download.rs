//! `key-safe` against a real package registry, with the box's own tools and configuration: signed indexes and a package come through,
//! and no byte of the key is there. Left out, with a line, where no registry can be reached from a container of this machine.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{IMAGE, KEY, Rig, ran, script, skipped};
use serde_json::Value;
use std::process::{Command, Stdio};

/// What the box's `apt` is told to trust and to ask stands in the image; only the places where it keeps things are ours, for the
/// box's user may not write the system's.
const FETCH: &str = "mkdir -p /tmp/l/partial /tmp/c/archives/partial && cd /tmp/c && \
    apt='apt-get -q -o Dir::State::Lists=/tmp/l -o Dir::Cache=/tmp/c -o Dir::State::status=/var/lib/dpkg/status \
    -o Debug::NoLocking=1 -o Acquire::Retries=3' && $apt update && $apt download hello && dpkg-deb -f hello_*.deb Package > /work/got";

/// Whether the registry answers a container that has nothing to do with us.
fn reachable() -> bool {
    let look = "p=/tmp/x; curl -sf -m 10 -o $p \"$(sed -n 's/^deb \\([^ ]*\\) \\([^ ]*\\) .*/\\1\\/dists\\/\\2\\/InRelease/p' /etc/apt/sources.list | sed 1q)\"";
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--pull", "never", "--network", "bridge", "--entrypoint", "/bin/sh", IMAGE]);
    command.args(["-c", look]).stdin(Stdio::null());
    command.output().is_ok_and(|done| done.status.success())
}

/// BOX B25 with a registry that is no friend of the test's.
#[test]
fn box_b25_a_package_comes_through_and_no_key_is_there() {
    if !reachable() {
        return skipped(&format!(
            "download: no docker, no image {IMAGE}, or no registry reachable from this host"
        ));
    }
    let look = "env > env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> env 2>/dev/null; \
        grep -rlsa 'sk-ant-RIG''KEY' /work /tmp /home /run /etc /root 2>/dev/null > files; cat ~/.netrc >> env 2>/dev/null; true";
    let rig = Rig::with(
        &script(&[FETCH, look], "done"),
        &["--runtime", "docker", "--image", IMAGE, "--mode", "key-safe"],
    );
    let done = rig.run(&["x"]).code(0).says("key-safe: the key stays outside");
    let read =
        |name: &str| std::fs::read(rig.work.join(name)).map(|b| String::from_utf8_lossy(&b).into_owned());
    assert_eq!(
        read("got").unwrap_or_else(|e| panic!("{e}: {} {:?}", done.err, rig.bodies().last())),
        "hello\n"
    );
    assert!(!read("env").unwrap().contains(KEY));
    assert_eq!(read("files").unwrap(), "");
    assert_eq!(rig.receipt()["mode"], Value::from("key-safe"));
    rig.assert_clean();
}

/// The same box without a network: nothing comes.
#[test]
fn sealed_reaches_no_registry() {
    if !reachable() {
        return skipped("download: see the line before");
    }
    let tried = "curl -s -m 10 http://deb.debian.org/ > /dev/null; echo $? > got";
    let rig = Rig::with(&script(&[tried], "done"), &["--runtime", "docker", "--image", IMAGE]);
    ran(rig.command(&["x"]).output().unwrap()).code(0);
    // 6: the name could not be resolved.
    assert_eq!(std::fs::read_to_string(rig.work.join("got")).unwrap(), "6\n");
    rig.assert_clean();
}
