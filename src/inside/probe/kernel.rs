//! Ways out by the kernel: namespaces, privileges, system calls, what `/proc` and the control groups give.

use crate::inside::probe::network::refusal;
use crate::limits;
use crate::sys::file::Dir;
use crate::sys::{attempt, file};
use crate::wire::probe::{Found, Task, Way};
use std::io;
use std::path::Path;

/// All of it.
pub fn probe(task: &Task, all: &mut Vec<Found>) {
    all.extend(namespaces(task));
    all.push(privileges());
    all.push(written(
        "sysctl",
        &[
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hostname",
            "/proc/sysrq-trigger",
        ],
    ));
    all.push(written("core-pattern", &["/proc/sys/kernel/core_pattern"]));
    all.push(kernel_memory());
    all.push(release_agent());
    all.push(first_process());
    for call in attempt::CALLS {
        let id = format!("call {}", call.0);
        all.push(match attempt::refused(call) {
            Ok(why) => Found::new(id, Way::Shut, why),
            Err(why) => Found::new(id, Way::Open, why),
        });
    }
}

/// The box's own namespaces are not the host's.
fn namespaces(task: &Task) -> Vec<Found> {
    let mut all = Vec::new();
    for host in &task.namespaces {
        let kind = host.split(':').next().unwrap_or_default();
        let id = format!("namespace {kind}");
        #[expect(clippy::disallowed_methods, reason = "FILE-63 attest: the box's own namespaces")]
        let own = attempt::link(&Path::new("/proc/self/ns").join(kind));
        all.push(match own {
            Ok(own) if own == *host => Found::new(id, Way::Open, "the host's"),
            Ok(own) => Found::new(id, Way::Shut, format!("{own}, the host's is {host}")),
            Err(e) => Found::new(id, Way::Untested, e.to_string()),
        });
    }
    all
}

fn read(path: &str) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "FILE-64 attest: /proc of the box")]
    let bytes = file::read_named(Path::new(path), limits::PROBE_FILE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// No capability in any set, no way to gain one, the filter in force.
fn privileges() -> Found {
    let id = "privileges";
    let status = match read("/proc/self/status") {
        Ok(text) => text,
        Err(e) => return Found::new(id, Way::Untested, e.to_string()),
    };
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_string()
    };
    let mut wrong: Vec<String> = Vec::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if field(set).chars().any(|c| c != '0') || field(set).is_empty() {
            wrong.push(format!("{set} {}", field(set)));
        }
    }
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(name) != wanted {
            wrong.push(format!("{name} {}", field(name)));
        }
    }
    match wrong.is_empty() {
        true => Found::new(id, Way::Shut, "no capability, no new privileges, a filter"),
        false => Found::new(id, Way::Open, wrong.join(", ")),
    }
}

/// Nothing of these may be opened for writing.
fn written(id: &str, paths: &[&str]) -> Found {
    let mut said = String::new();
    for path in paths {
        #[expect(
            clippy::disallowed_methods,
            reason = "FILE-65 attest: settings of the kernel, opened to write"
        )]
        match attempt::open_to_write(Path::new(path)) {
            Ok(()) => return Found::new(id, Way::Open, format!("{path} can be written")),
            Err(e) => said = e.to_string(),
        }
    }
    Found::new(id, Way::Shut, said)
}

/// Docker puts an empty file over what it hides.
fn kernel_memory() -> Found {
    let id = "kernel-memory";
    for path in ["/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/proc/kmsg"] {
        #[expect(clippy::disallowed_methods, reason = "FILE-66 attest: the kernel's memory")]
        if attempt::first_byte(Path::new(path)).is_ok_and(|there| there) {
            return Found::new(id, Way::Open, format!("{path} can be read"));
        }
    }
    Found::new(id, Way::Shut, "/proc/kcore, /dev/mem and the like give nothing")
}

/// A program named there is run by the host's kernel, outside.
fn release_agent() -> Found {
    let id = "cgroup-release-agent";
    #[expect(clippy::disallowed_methods, reason = "FILE-67 attest: the control groups of the box")]
    let Ok(top) = Dir::open(Path::new("/sys/fs/cgroup")) else {
        return Found::new(id, Way::Shut, "no control groups in the box");
    };
    let mut groups: Vec<String> = top.names().unwrap_or_default();
    groups.push(String::new());
    for group in groups {
        for name in ["release_agent", "notify_on_release", "cgroup.procs", "devices.allow"] {
            let path = Path::new("/sys/fs/cgroup").join(&group).join(name);
            #[expect(clippy::disallowed_methods, reason = "FILE-68 attest: control groups, opened to write")]
            if attempt::open_to_write(&path).is_ok() {
                return Found::new(id, Way::Open, format!("{} can be written", path.display()));
            }
        }
    }
    Found::new(id, Way::Shut, "nothing of them can be written")
}

/// PID 1 is ours and closed: its files, its memory, its descriptors.
fn first_process() -> Found {
    let id = "first-process";
    let name = read("/proc/1/comm").unwrap_or_default();
    if name.trim() != "sanduk" {
        return Found::new(id, Way::Open, format!("PID 1 is {}", name.trim()));
    }
    #[expect(clippy::disallowed_methods, reason = "FILE-69 attest: the root of the box's first process")]
    let root = Dir::open(Path::new("/proc/1/root/.")).map(drop);
    let tries = [
        ("/proc/1/root", root),
        ("/proc/1/environ", read("/proc/1/environ").map(drop)),
        ("/proc/1/maps", read("/proc/1/maps").map(drop)),
        ("a descriptor of it", attempt::take_descriptor(1)),
    ];
    for (what, got) in tries {
        if got.is_ok() {
            return Found::new(id, Way::Open, format!("{what} can be had"));
        }
    }
    refusal(id, Err(io::Error::other("sanduk, whose root, memory and descriptors are closed")))
}
