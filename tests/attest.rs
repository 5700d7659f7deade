//! `sanduk attest` and `sanduk doctor`, as typed: closed on both engines, each hole named that is made on purpose, engine trouble said.
//! Real boxes, as root and as an ordinary user.
#![expect(clippy::disallowed_methods, reason = "tests")]

use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

/// The image of `tests/run/rig.rs`.
const IMAGE: &str = "sanduk-base:bookworm";
const USER: u32 = 4242;

/// One at a time: a box with the host's network takes the forwarder's port of the host.
static TURN: Mutex<()> = Mutex::new(());

struct Place {
    path: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Place {
        let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/sanduk-attest-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Place { path, _turn: turn }
    }

    /// `sanduk …` with nothing of our environment; `Some(group)`: as uid 4242, in that group besides its own.
    fn command(&self, user: Option<&str>, args: &[&str]) -> Command {
        let own = env!("CARGO_BIN_EXE_sanduk");
        let mut command = match user {
            None => Command::new(own),
            Some(group) => {
                // A copy that everybody may run: the target directory is the builder's.
                // Under another name, too.
                let copy = self.path.join("another-name");
                std::fs::copy(own, &copy).unwrap();
                chown(&self.path, Some(USER), Some(USER)).unwrap();
                let mut command = Command::new("/usr/bin/setpriv");
                command.args(["--reuid", "4242", "--regid", "4242"]);
                match group {
                    "" => command.arg("--clear-groups"),
                    group => command.args(["--groups", group]),
                };
                command.arg(copy);
                command
            }
        };
        command.args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.path);
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn run(&self, user: Option<&str>, args: &[&str]) -> Ran {
        ran(&mut self.command(user, args))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn ran(command: &mut Command) -> Ran {
    let done = command.output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Ran { code: done.status.code(), out: text(&done.stdout), err: text(&done.stderr) }
}

fn root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Docker answers and has the image; else said, and not tried.
fn docker() -> bool {
    let asked = Command::new("docker").args(["image", "inspect", IMAGE]).output();
    let there = asked.is_ok_and(|done| done.status.success());
    if !there {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: docker with {IMAGE}");
    }
    there
}

const BWRAP: [&str; 2] = ["--runtime", "bwrap"];
const DOCKER: [&str; 4] = ["--runtime", "docker", "--image", IMAGE];

#[track_caller]
fn answer(ran: &Ran, code: i32) -> Value {
    assert_eq!(ran.code, Some(code), "{}\n{}", ran.out, ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

fn probes<'a>(answer: &'a Value, verdict: &str) -> Vec<&'a str> {
    let all = answer["probes"].as_array().unwrap().iter();
    all.filter(|p| p["verdict"] == verdict).map(|p| p["id"].as_str().unwrap()).collect()
}

/// Every kind of way is tried, none is open, none is left untested but what this host itself cannot show.
#[track_caller]
fn closed(place: &Place, user: Option<&str>, engine: &[&str]) {
    let ran = place.run(user, &[&["attest", "--json"], engine].concat());
    let answer = answer(&ran, 0);
    assert_eq!((&answer["schema"], &answer["verdict"]), (&Value::from(1), &Value::from("closed")));
    assert_eq!(probes(&answer, "hole"), Vec::<&str>::new());
    assert_eq!((&answer["untested"], &answer["unproven"]), (&Value::from(0), &serde_json::json!([])));
    assert_eq!(probes(&answer, "untested"), Vec::<&str>::new(), "{}", ran.out);
    let done = probes(&answer, "closed");
    for kind in [
        "net-interfaces",
        "net-routes",
        "host-tcp 127.0.0.1:",
        "host-udp 127.0.0.1:",
        "dns-udp 8.8.8.8",
        "dns-tcp 8.8.8.8",
        "metadata 169.254.169.254",
        "internet ",
        "other-box-tcp",
        "other-box-abstract",
        "host-abstract",
        "icmp ",
        "raw-socket",
        "packet-socket",
        "netlink-write",
        "socket-families",
        "host-sockets",
        "engine-sockets",
        "writable-system",
        "devices",
        "make-device",
        "set-id",
        "key-environ",
        "key-argv",
        "key-memory",
        "key-mounts",
        "key-files",
        "namespace net",
        "namespace pid",
        "privileges",
        "sysctl",
        "core-pattern",
        "kernel-memory",
        "cgroup-release-agent",
        "first-process",
        "call mount",
        "call unshare",
        "call ptrace",
        "call bpf",
        "call io_uring",
        "call userfaultfd",
        "call keyctl",
        "relay-works",
        "relay-path",
        "relay-absolute-form",
        "relay-wrong-token",
        "relay-web-search",
        "relay-mcp-connector",
        "relay-url-source",
        "relay-key-reflected",
        "relay-provider",
        "relay-confined",
        "box-processes",
        "nothing-left",
    ] {
        assert!(done.iter().any(|id| id.starts_with(kind)), "no {kind} among {done:?}");
    }
    // Every address of this host but its link-local ones.
    for address in String::from_utf8_lossy(&Command::new("hostname").arg("-I").output().unwrap().stdout)
        .split_whitespace()
    {
        assert!(
            done.iter().any(|id| id.starts_with("host-tcp") && id.contains(address)),
            "{address}: {done:?}"
        );
    }
    for (field, part) in [("version", env!("CARGO_PKG_VERSION")), ("engine", engine[1]), ("kernel", ".")] {
        assert!(answer[field].as_str().unwrap().contains(part), "{field}: {answer}");
    }
    features(&answer);
    gone(place);
}

/// What confined the relay is named in the answer and in the receipt of that very run: also what a kernel lacks.
fn features(answer: &Value) {
    let features = &answer["features"];
    let words: Vec<&str> = features.as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(words.iter().any(|w| w.starts_with("seccomp")), "{words:?}");
    assert!(words.iter().any(|w| w.starts_with("landlock")), "{words:?}");
    let receipt = std::fs::read(answer["receipt"].as_str().unwrap()).unwrap();
    let receipt: Value = serde_json::from_slice(&receipt).unwrap();
    assert_eq!(&receipt["relay_features"], features);
}

fn gone(place: &Place) {
    let runs = place.path.join(".local/state/sanduk/runs");
    assert_eq!(std::fs::read_dir(runs).unwrap().count(), 0, "a record is left");
    let mine = std::fs::read_dir("/tmp").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = mine.filter(|n| n.starts_with("sanduk-attest-") && !n.contains("test")).collect();
    // Of others who test at this moment, perhaps; of a dead one never.
    let dead =
        left.iter().filter(|n| !Path::new(&format!("/proc/{}", n.split('-').nth(2).unwrap())).exists());
    assert_eq!(dead.count(), 0, "{left:?}");
}

#[test]
fn closed_on_bwrap() {
    closed(&Place::new(), None, &BWRAP);
}

#[test]
fn closed_on_docker() {
    if docker() {
        closed(&Place::new(), None, &DOCKER);
    }
}

#[test]
fn closed_for_an_ordinary_user() {
    if !root() {
        // Then the two above have been it.
        return;
    }
    closed(&Place::new(), Some(""), &BWRAP);
    if docker() {
        let group = std::fs::metadata("/var/run/docker.sock").unwrap().gid().to_string();
        closed(&Place::new(), Some(&group), &DOCKER);
    }
}

/// Exit 3, and the hole by name; `but`: what that hole does not open stays closed.
#[track_caller]
fn named(hole: &str, engine: &[&str], wanted: &[&str], but: &[&str]) {
    let place = Place::new();
    let ran = place.run(None, &[&["attest", "--json", "--hole", hole], engine].concat());
    let answer = answer(&ran, 3);
    assert_eq!((&answer["verdict"], &answer["made_hole"]), (&Value::from("holes"), &Value::from(hole)));
    let (open, shut) = (probes(&answer, "hole"), probes(&answer, "closed"));
    for id in wanted {
        assert!(open.iter().any(|o| o.starts_with(id)), "{hole} on {}: no {id} among {open:?}", engine[1]);
    }
    for id in but {
        assert!(
            shut.iter().any(|o| o.starts_with(id)),
            "{hole} on {}: {id} is not closed: {open:?}",
            engine[1]
        );
    }
    gone(&place);
}

const KEY: [&str; 2] = ["key-environ", "key-files"];
const NET: [&str; 4] = ["net-interfaces", "host-tcp 127.0.0.1:", "host-udp 127.0.0.1:", "namespace net"];

#[test]
fn holes_are_named_on_bwrap() {
    named("key", &BWRAP, &KEY, &["net-interfaces", "host-tcp", "host-sockets", "relay-web-search"]);
    named(
        "socket",
        &BWRAP,
        &["host-sockets /mnt/engine/docker.sock"],
        &["net-interfaces", "key-environ", "key-files"],
    );
    named("port", &BWRAP, &NET, &["key-environ", "host-sockets", "raw-socket", "netlink-write"]);
}

#[test]
fn holes_are_named_on_docker() {
    if !docker() {
        return;
    }
    named("key", &DOCKER, &KEY, &["net-interfaces", "host-tcp", "host-sockets", "relay-web-search"]);
    named(
        "socket",
        &DOCKER,
        &["host-sockets /mnt/engine/docker.sock"],
        &["net-interfaces", "key-environ", "key-files"],
    );
    named("port", &DOCKER, &NET, &["key-environ", "host-sockets", "raw-socket", "netlink-write"]);
    let bridge = ["net-interfaces", "net-routes", "host-tcp 172.", "other-box-tcp 172."];
    named(
        "bridge",
        &DOCKER,
        &bridge,
        &["key-environ", "namespace net", "host-tcp 127.0.0.1:", "host-abstract"],
    );
}

/// For people: a line each, the sum last.
#[test]
fn a_table_for_people() {
    let place = Place::new();
    let ran = place.run(None, &["attest", "--runtime", "bwrap", "--hole", "key"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(
        ran.out.contains("HOLE     key-environ") && ran.out.contains("closed   net-interfaces"),
        "{}",
        ran.out
    );
    let last = ran.out.lines().last().unwrap();
    assert!(last.starts_with("3 open: key-environ, key-memory, key-files"), "{last}");
    assert!(!ran.out.contains("sk-ant-attest"), "the made-up key is printed");
}

/// An engine that is missing, dead or of no use is exit 4 with a remedy; a wrong word is exit 2. Nothing is said to be closed.
#[test]
fn engine_trouble_is_no_verdict() {
    let place = Place::new();
    for (args, path, host, code, part) in [
        (&["attest", "--runtime", "docker"][..], "/nowhere", "", 4, "install docker"),
        (&["attest", "--runtime", "bwrap"], "/nowhere", "", 4, "bubblewrap"),
        (&["attest"], "/nowhere", "", 4, "bubblewrap"),
        (&["attest", "--runtime", "podman"], "/usr/bin:/bin", "", 2, "not built yet"),
        (
            &["attest", "--runtime", "bwrap", "--hole", "x"],
            "/usr/bin:/bin",
            "",
            2,
            "bridge, socket, key or port",
        ),
        (&["attest", "--runtime", "bwrap", "--hole", "bridge"], "/usr/bin:/bin", "", 2, "--hole port"),
        (&["attest", "--runtime", "bwrap", "--image", "x"], "/usr/bin:/bin", "", 2, "no image"),
    ] {
        let mut command = place.command(None, args);
        command.env("PATH", path).env("DOCKER_HOST", host);
        let ran = ran(&mut command);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(part) && ran.out.is_empty(), "{args:?}: {}", ran.err);
    }
    if docker() {
        let mut dead = place.command(None, &["attest", "--runtime", "docker"]);
        let dead = ran(dead.env("DOCKER_HOST", "unix:///tmp/nobody-listens-here.sock"));
        assert_eq!(dead.code, Some(4), "{}", dead.err);
        let image = place.run(None, &["attest", "--runtime", "docker", "--image", "no-such:image"]);
        assert_eq!(image.code, Some(4), "{}", image.err);
    }
}

/// `kill -9` in the middle: both boxes go by their own keepers, the directories in /tmp with the next `attest`.
#[test]
fn killed_in_the_middle_leaves_nothing() {
    let place = Place::new();
    let mut command = place.command(None, &["attest", "--runtime", "bwrap"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let runs = place.path.join(".local/state/sanduk/runs");
    let records = || std::fs::read_dir(&runs).map_or(0, |all| all.count());
    let until = |what: &str, look: &dyn Fn() -> bool| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !look() {
            assert!(std::time::Instant::now() < end, "{what} did not come");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    // Before there is a keeper a record waits for the next sweep.
    let boxes = || {
        let all = std::fs::read_dir(&runs).into_iter().flatten();
        let records = all.filter_map(|e| std::fs::read_to_string(e.unwrap().path().join("record")).ok());
        records.filter(|r| r.contains("\nbox_pid=")).count()
    };
    until("two boxes", &|| boxes() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of both runs", &|| records() == 0);
    let left = || {
        let prefix = format!("sanduk-attest-{}-", child.id());
        std::fs::read_dir("/tmp")
            .unwrap()
            .any(|e| e.unwrap().file_name().to_string_lossy().starts_with(&prefix))
    };
    assert!(left(), "who removed it?");
    let next = place.run(None, &["attest", "--runtime", "bwrap", "--hole", "key"]);
    assert_eq!(next.code, Some(3), "{}", next.err);
    assert!(!left(), "its directory is left");
    gone(&place);
}
