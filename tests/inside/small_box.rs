//! A real box around the real binary: bubblewrap as an ordinary user (root becomes one first), so that PID 1, the peer's
//! pid 0 and the filter are what they are in use. Whatever a test leaves is killed and removed when the box is dropped.

use crate::client::{Client, SECRET, start};
use sanduk::wire::control::{Event, Start, Turn};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The uid of the box where the test runs as root.
const USER: u32 = 61_234;

pub struct SmallBox {
    pub root: PathBuf,
    pub client: Client,
    outer: Child,
}

impl SmallBox {
    /// A box whose control server answers; no `/start` yet.
    pub fn new() -> SmallBox {
        SmallBox::with(|_| {})
    }

    /// `prepare` gets the directory that holds `box/`, `host/` and `work/` before anything starts.
    pub fn with(prepare: impl FnOnce(&Path)) -> SmallBox {
        SmallBox::make(prepare, "exec \"$@\"")
    }

    /// A box that may hold so many processes and threads. Set in the box, so that only those in it are counted.
    pub fn at_process_limit(most: u32) -> SmallBox {
        SmallBox::make(|_| {}, &format!("exec prlimit --nproc={most} \"$@\""))
    }

    /// `before` is the shell script that becomes PID 1 of the box.
    fn make(prepare: impl FnOnce(&Path), before: &str) -> SmallBox {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("sanduk-box-{}-{n}", std::process::id()));
        let root_user = user() == 0;
        fs::create_dir(&root).unwrap();
        for name in ["box", "host", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        // A copy: the build directory may be closed to the box's user.
        fs::copy(env!("CARGO_BIN_EXE_sanduk"), root.join("sanduk")).unwrap();
        fs::set_permissions(root.join("sanduk"), fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&root);
        if root_user {
            give(&root);
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new("/usr/bin/bwrap");
        command.args(argv(&root, if root_user { USER } else { user() }, before));
        command.stdin(Stdio::null()).env_clear();
        if root_user {
            command.uid(USER).gid(USER);
        }
        let outer = command.spawn().expect("bubblewrap starts: `make setup` installs it");
        let mut new = SmallBox { client: Client::new(&root.join("box")), root, outer };
        while !new.client.call_as("GET", "/health", "", b"").is_ok_and(|reply| reply.status == 200) {
            let ended = new.outer.try_wait().unwrap();
            assert!(ended.is_none(), "the box ended before it answered: {ended:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        new
    }

    /// A box that runs this turn.
    pub fn run(turn: Turn) -> SmallBox {
        let new = SmallBox::new();
        new.start(&start(turn));
        new
    }

    pub fn start(&self, start: &Start) {
        let reply = self.client.call_as("POST", "/start", "", &serde_json::to_vec(start).unwrap()).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    /// Runs the turn in a fresh box and returns all its events.
    pub fn events_of(turn: Turn) -> Vec<Event> {
        SmallBox::run(turn).client.events()
    }

    /// The pid of PID 1 as the host sees it.
    pub fn inside(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.outer.id());
        fs::read_to_string(path).unwrap().trim().parse().expect("bubblewrap has one child")
    }

    /// Every process below PID 1, as the host sees them.
    pub fn below(&self) -> Vec<u32> {
        let mut found = vec![self.inside()];
        let mut at = 0;
        while let Some(pid) = found.get(at).copied() {
            at += 1;
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                found.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
            }
        }
        found.split_off(1)
    }

    /// Waits for bubblewrap's end, which passes on how PID 1 ended.
    pub fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.outer.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the box does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A file the agent wrote into the workspace; waits until it is there and has this many bytes.
    pub fn wait_for(&self, name: &str, bytes: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        while fs::metadata(self.root.join("work").join(name)).map_or(0, |m| m.len()) < bytes {
            assert!(Instant::now() < until, "the agent never wrote {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for SmallBox {
    fn drop(&mut self) {
        // PID 1 dies with bubblewrap (--die-with-parent), and the box with PID 1.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn user() -> u32 {
    sanduk::sys::proc::ids().0
}

fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::lchown(entry.path(), Some(USER), Some(USER)).unwrap();
    }
}

fn argv(root: &Path, uid: u32, before: &str) -> Vec<String> {
    let (root, uid) = (root.to_str().unwrap(), uid.to_string());
    let at = |name: &str| format!("{root}/{name}");
    let mut argv: Vec<String> = "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts \
        --unshare-cgroup-try --disable-userns --die-with-parent --new-session --as-pid-1 --clearenv --cap-drop ALL \
        --hostname box --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib \
        --symlink usr/lib64 /lib64 --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache --ro-bind-try /etc/alternatives \
        /etc/alternatives --proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --tmpfs /tmp --tmpfs /home/agent \
        --dir /run/sanduk --chdir /work"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    for part in [
        ["--uid", &uid, "--gid", &uid].as_slice(),
        &["--bind", &at("work"), "/work", "--ro-bind", &at("sanduk"), "/sanduk"],
        &["--ro-bind", &at("host"), "/run/sanduk/host", "--bind", &at("box"), "/run/sanduk/box"],
        &["--", "/bin/sh", "-c", before, "sh", "/sanduk", "inside", "/run/sanduk/box"],
    ] {
        argv.extend(part.iter().map(|s| (*s).to_owned()));
    }
    argv
}

/// The environment variable by which a hostile agent is told the control secret.
pub fn with_secret(mut turn: Turn) -> Turn {
    turn.env.push(("STOLEN".to_owned(), SECRET.to_owned()));
    turn
}
