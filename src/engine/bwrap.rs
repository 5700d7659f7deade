//! bubblewrap: a `Plan` as an argv, and the check of its version. Pure; `run/keeper` starts the result, never with euid 0
//! (a box of root's would be uid 0 of the host to every file it can reach).

use crate::engine::plan::{self, Hole, Mask, Mount, Plan};
use crate::limits;
use std::ffi::{OsStr, OsString};

/// Oldest version with `--disable-userns`.
const OLDEST: (u32, u32) = (0, 8);

/// The arguments after `bwrap`. The box's argv is constant; all that a run varies are paths of the host, uid and gid.
pub fn argv(plan: &Plan) -> Vec<OsString> {
    let mut out = Argv(Vec::with_capacity(128));
    isolation(&mut out, plan.user, plan.hole);
    system(&mut out, plan);
    channel(&mut out, plan);
    out.bind(false, plan.workdir.as_os_str(), plan::WORK);
    for Mount { host, dest, readonly } in &plan.mounts {
        out.bind(*readonly, host.as_os_str(), dest);
    }
    masks(&mut out, plan);
    // Last, so that the mount points above could still be made.
    out.add(&["--remount-ro", "/", "--chdir", plan::WORK, "--", plan::BINARY, "inside", plan::BOX_END]);
    out.0
}

/// Namespaces, no capability, no terminal, no environment. `--as-pid-1`: our own role reaps and cannot be stopped by the agent.
fn isolation(out: &mut Argv, (uid, gid): (u32, u32), hole: Option<Hole>) {
    out.add(&["--unshare-user", "--unshare-ipc", "--unshare-pid"]);
    if hole != Some(Hole::Host) {
        out.add(&["--unshare-net"]);
    }
    out.add(&[
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]);
    // Its own standard output: the keeper reads the pid of the box's PID 1 there; bwrap closes it in the box.
    out.add(&["--json-status-fd", "1"]);
    out.add(&["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", plan::HOME]);
    out.add(&[
        "--uid",
        &uid.to_string(),
        "--gid",
        &gid.to_string(),
        "--hostname",
        "box",
        "--cap-drop",
        "ALL",
    ]);
}

/// Programs and libraries of the host, read-only, and nothing else of it: no `/home`, `/root`, `/var`, `/etc` but five entries.
fn system(out: &mut Argv, plan: &Plan) {
    out.add(&["--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        out.add(&["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
    }
    for path in ["/etc/ld.so.cache", "/etc/ssl/certs", "/etc/alternatives"] {
        out.add(&["--ro-bind-try", path, path]);
    }
    for name in ["passwd", "group"] {
        out.bind(true, plan.channel.join("etc").join(name).as_os_str(), &format!("/etc/{name}"));
    }
    // A box that were uid 0 of the host could otherwise write sysctls.
    out.add(&["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]);
    out.tmpfs(limits::BOX_SMALL_BYTES, "/dev/shm");
    out.add(&["--remount-ro", "/dev"]);
    out.tmpfs(limits::BOX_TMP_BYTES, "/tmp");
    out.tmpfs(limits::BOX_HOME_BYTES, plan::HOME);
}

fn channel(out: &mut Argv, plan: &Plan) {
    out.bind(true, plan.channel.join("sanduk").as_os_str(), plan::BINARY);
    out.bind(true, plan.channel.join("host").as_os_str(), plan::HOST_END);
    out.bind(false, plan.channel.join("box").as_os_str(), plan::BOX_END);
}

fn masks(out: &mut Argv, plan: &Plan) {
    for Mask { path, directory } in &plan.masks {
        let dest = format!("{}/{path}", plan::WORK);
        if *directory {
            out.tmpfs(limits::BOX_SMALL_BYTES, &dest);
            out.add(&["--remount-ro", &dest]);
        } else {
            out.bind(true, plan.channel.join("etc/empty").as_os_str(), &dest);
        }
    }
}

struct Argv(Vec<OsString>);

impl Argv {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn bind(&mut self, readonly: bool, host: &OsStr, dest: &str) {
        self.0.push(if readonly { "--ro-bind" } else { "--bind" }.into());
        self.0.push(host.to_os_string());
        self.0.push(dest.into());
    }

    fn tmpfs(&mut self, bytes: u64, dest: &str) {
        self.add(&["--size", &bytes.to_string(), "--tmpfs", dest]);
    }
}

/// Reads the answer to `bwrap --version`; `Err`: why this one will not do, as a clause.
pub fn version(answer: &str) -> Result<String, String> {
    let version = answer.split_whitespace().nth(1).unwrap_or_default();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(version.to_string()),
        (Some(_), Some(_)) => {
            Err(format!("it is version {version}, and 0.8 is the oldest with --disable-userns"))
        }
        _ => Err("it does not say its version".to_string()),
    }
}

/// What to do about the last words of a bwrap that could not start the box.
pub fn remedy(words: &str) -> &'static str {
    let says = |part: &str| words.contains(part);
    if says("No permissions to create") || says("setting up uid map") || says("Creating new namespace failed")
    {
        "let unprivileged users make user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), \
         kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap (Ubuntu 24.04 and later), \
         user.max_user_namespaces above 0"
    } else if says("RTM_NEWADDR") || says("loopback") {
        "this host lets no user namespace configure its own loopback: an AppArmor profile for bwrap is needed (Ubuntu 24.04 and later)"
    } else if says(plan::BINARY) && says("Permission denied") {
        "is /tmp mounted noexec? the box runs a copy of this program from there: mount -o remount,exec /tmp"
    } else if says("/tmp/") && says("Permission denied") {
        "the box's user must be able to enter /tmp: chmod 1777 /tmp"
    } else if says("proc") && says("Operation not permitted") {
        "this host hides parts of /proc, as inside another container: run it on the host itself"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("bubblewrap 0.8.0\n"), Ok("0.8.0".to_string()));
        assert!(version("bubblewrap 0.11.1").is_ok());
        assert!(version("bubblewrap 1.0").is_ok());
        for bad in ["bubblewrap 0.7.9", "", "bubblewrap", "bubblewrap x.y"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
