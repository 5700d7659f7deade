//! A work directory, a scripted provider and the program, for tests of whole runs. As root the box belongs to an ordinary uid.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../support/provider.rs"]
#[expect(dead_code, reason = "its own program uses the rest")]
mod provider;

/// The provider's key. Test scripts spell it in pieces, so that they are no hit themselves.
pub const KEY: &str = "sk-ant-RIGKEY-0123456789abcdef";
/// Long enough for a loaded machine; only a failing test waits it out.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Owner of the work directory where the tests are root's.
const USER: u32 = 61_007;

pub struct Rig {
    pub place: PathBuf,
    pub work: PathBuf,
    pub state: PathBuf,
    pub address: String,
    /// Another way to the provider than plain HTTP to that address.
    pub upstream: Option<String>,
    /// The flags that choose the engine.
    pub engine: Vec<String>,
    seen: Arc<Mutex<Vec<Value>>>,
}

/// What a finished run left on its streams.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Replies of one conversation: each tool call is one reply, the last one is text.
pub fn script(commands: &[&str], last: &str) -> String {
    let mut replies: Vec<Value> = commands
        .iter()
        .map(|c| json!({"tools": [{"name": "bash", "input": {"command": c}}], "usage": {"input": 10, "output": 5}}))
        .collect();
    replies.push(json!({"text": last, "usage": {"input": 7, "output": 3, "cache_read": 100}}));
    json!({"order": "turn", "end": "last", "replies": replies}).to_string()
}

pub fn root() -> bool {
    // The owner of our own process directory is our effective uid.
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Bwrap,
    Docker,
}

/// A small image with a shell, perl and git, made on this machine by `make image-base`.
pub const IMAGE: &str = "sanduk-base:bookworm";

impl Rig {
    /// On bwrap.
    pub fn new(script: &str) -> Rig {
        Rig::on(On::Bwrap, script)
    }

    pub fn on(on: On, script: &str) -> Rig {
        match on {
            On::Bwrap => Rig::with(script, &["--runtime", "bwrap"]),
            On::Docker => Rig::with(script, &["--runtime", "docker", "--image", IMAGE]),
        }
    }

    pub fn with(script: &str, engine: &[&str]) -> Rig {
        Rig::at("127.0.0.1", script, engine)
    }

    /// With the provider at this address.
    pub fn at(host: &str, script: &str, engine: &[&str]) -> Rig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = PathBuf::from(format!("/tmp/sanduk-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
        let work = place.join("work");
        std::fs::create_dir(&work).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&seen);
        let record = Box::new(move |line: &str| to.lock().unwrap().push(serde_json::from_str(line).unwrap()));
        let address = provider::start(&format!("{host}:0"), script, record).unwrap().to_string();
        let engine = engine.iter().map(|word| word.to_string()).collect();
        let rig = Rig { state: place.join("state"), place, work, address, upstream: None, engine, seen };
        rig.give(&rig.work);
        rig
    }

    /// Hands a path to the box's user.
    pub fn give(&self, path: &Path) {
        if root() {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work.join(name), text).unwrap();
        self.give(&self.work.join(name));
    }

    /// `sanduk run TASK -w work …`, nothing of our environment but what it needs.
    pub fn command(&self, more: &[&str]) -> Command {
        self.command_in(&self.work, more)
    }

    /// The same on another work directory.
    pub fn command_in(&self, work: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.arg("run").arg("-w").arg(work);
        let plain = format!("http://{}", self.address);
        let upstream = self.upstream.as_ref().unwrap_or(&plain);
        command.args(["--agent", "mini", "--model", "m-1", "--upstream", upstream]);
        command.args(&self.engine).args(more).current_dir(&self.place).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.place);
        command.env("XDG_STATE_HOME", &self.state).env("ANTHROPIC_API_KEY", KEY);
        command
    }

    pub fn run(&self, more: &[&str]) -> Ran {
        ran(self.command(more).output().unwrap())
    }

    /// Starts a run; its streams are piped.
    pub fn start(&self, more: &[&str]) -> Child {
        self.command(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Heads of all requests the provider got, as its own record has them.
    pub fn heads(&self) -> String {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|r| format!("{} {} {}\n", r["method"], r["target"], r["headers"])).collect()
    }

    /// Bodies of the POST requests the provider got, in order.
    pub fn bodies(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let posts = seen.iter().filter(|r| r["method"] == "POST");
        posts.map(|r| r["body"].as_str().unwrap_or_default().to_string()).collect()
    }

    pub fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The same, once it stands still: what a killed relay had sent already, the provider may read a moment later.
    pub fn settled(&self) -> usize {
        let mut seen = self.requests();
        loop {
            std::thread::sleep(Duration::from_millis(250));
            match self.requests() {
                now if now == seen => return now,
                now => seen = now,
            }
        }
    }

    /// The only receipt.
    pub fn receipt(&self) -> Value {
        let dir = self.kept();
        serde_json::from_slice(&std::fs::read(dir.join("receipt.json")).unwrap()).unwrap()
    }

    /// The only directory of receipts.
    pub fn kept(&self) -> PathBuf {
        let mut all = list(&self.state.join("sanduk/receipts"));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Records of runs, complete ones or not.
    pub fn records(&self) -> Vec<PathBuf> {
        list(&self.state.join("sanduk/runs"))
    }

    /// The fields of the one record, once `key` is among them.
    pub fn record_with(&self, key: &str) -> BTreeMap<String, String> {
        until("a record with that line", || {
            let text = std::fs::read_to_string(self.records().first()?.join("record")).ok()?;
            let fields: BTreeMap<String, String> = text
                .lines()
                .filter_map(|l| l.split_once('='))
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect();
            fields.contains_key(key).then_some(fields)
        })
    }

    /// Ids of the containers that this rig's work directory is mounted in, running or not.
    pub fn containers(&self) -> Vec<String> {
        let volume = format!("volume={}", self.work.display());
        docker(&["ps", "-aq", "--no-trunc", "--filter", &volume]).lines().map(str::to_string).collect()
    }

    /// Nothing of any run is left.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.records(), Vec::<PathBuf>::new(), "records");
        // With the slash: place 1 is no part of place 12.
        let place = format!("{}/", self.place.display());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&format!("{place}work")), "a mount is left");
        // The engine's command line names the work directory; a box and a relay die with their keeper.
        let left: Vec<String> = processes()
            .into_iter()
            .filter(|(_, line)| line.contains(&place) && line.contains("--unshare-pid"))
            .map(|(pid, _)| pid.to_string())
            .collect();
        assert!(left.is_empty(), "engines are left: {left:?}");
        if self.engine.iter().any(|word| word == "docker") {
            assert_eq!(self.containers(), Vec::<String>::new(), "containers are left");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ran {
    #[track_caller]
    pub fn code(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, part: &str) -> Ran {
        assert!(self.err.contains(part), "no {part:?} in: {}", self.err);
        self
    }
}

/// A call of docker that has to work: what it prints.
#[track_caller]
pub fn docker(args: &[&str]) -> String {
    let done = Command::new("docker").args(args).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Entries of a directory, sorted; none where it is missing.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// Every process with its command line; zombies have none.
pub fn processes() -> Vec<(u32, String)> {
    list(Path::new("/proc"))
        .into_iter()
        .filter_map(|p| {
            let pid = p.file_name()?.to_str()?.parse().ok()?;
            let line = std::fs::read(p.join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

/// Parent and start time of every process that is no zombie (proc(5): fields 4 and 22). A pid alone may be somebody else's by now.
pub fn living() -> BTreeMap<u32, (u32, u64)> {
    let one = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let alive = !matches!(*rest.first()?, "Z" | "X");
        let known = (rest.get(1)?.parse().ok()?, rest.get(19)?.parse().ok()?);
        alive.then_some((pid, known))
    };
    list(Path::new("/proc")).iter().filter_map(|p| one(p.file_name()?.to_str()?.parse().ok()?)).collect()
}

/// `root` and all below it, top down, with their start times.
pub fn family(root: u32) -> Vec<(u32, u64)> {
    let living = living();
    let mut all: Vec<(u32, u64)> = living.get(&root).map(|(_, start)| (root, *start)).into_iter().collect();
    let mut at = 0;
    while at < all.len() {
        let above = all[at].0;
        let below = living.iter().filter(|(_, (parent, _))| *parent == above);
        all.extend(below.map(|(pid, (_, start))| (*pid, *start)));
        at += 1;
    }
    all
}

/// Waits for something to become true.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal with kill(1): tests have no unsafe.
pub fn signal(pid: u32, name: &str) {
    let done = Command::new("/bin/kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    done.unwrap();
}

/// Said on the terminal also where the test passes: the harness takes only what goes through its own macros.
pub fn skipped(what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}
