//! Whole runs, mini in a sealed box on bwrap, whose provider is behind TLS: through a CONNECT proxy with a password, and through a stunnel.
//! What the relay by itself makes of both stands in `tests/relay/{proxy,stunnel}.rs`.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "support/connect.rs"]
mod connect;
#[path = "run/front.rs"]
mod front;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use front::Front;
use rig::{KEY, PATIENCE, Ran, Rig, family, list, ran, root, script, skipped, until};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Another user than root.
const ELSE: u32 = 4242;
/// Scripts spell it in pieces, so that they are no hit themselves. `BASIC` is `joe:` and this in base64.
const PASSWORD: &str = "prx-PASSWORD-77q";
const BASIC: &str = "am9lOnByeC1QQVNTV09SRC03N3E=";

/// A provider that lets only the key in, behind TLS.
fn behind_tls(commands: &[&str]) -> (Rig, Front) {
    let mut asked: serde_json::Value = serde_json::from_str(&script(commands, "done")).unwrap();
    asked["key"] = KEY.into();
    let mut rig = Rig::new(&asked.to_string());
    let front = Front::new(&rig);
    rig.upstream = Some(format!("https://localhost:{}", front.port));
    (rig, front)
}

/// A tool that says where it is and waits until the test has looked.
const WAITS: &str = "touch here; until [ -e go ]; do sleep 0.05; done";

/// Waits until the run is there, looks, lets it go on.
fn meanwhile(rig: &Rig, mut run: Child, look: impl FnOnce(&[u32])) -> Ran {
    let here = || rig.work.join("here").exists();
    until("the box, or the run's end", || (here() || run.try_wait().unwrap().is_some()).then_some(()));
    if !here() {
        panic!("the run ended: {}", ran(run.wait_with_output().unwrap()).err);
    }
    let goes_on = GoesOn(rig);
    look(&family(run.id()).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>());
    drop(goes_on);
    ran(run.wait_with_output().unwrap())
}

/// Also where the look fails: nothing is to wait for ever.
struct GoesOn<'a>(&'a Rig);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.write("go", "");
    }
}

fn of(pid: u32, name: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default())
        .replace('\0', "\n")
}

/// The relay of a run's processes.
fn relay(family: &[u32]) -> u32 {
    *family.iter().find(|pid| of(**pid, "cmdline").contains("\nrelay-role")).unwrap()
}

/// `user:password` in a file of ours alone.
fn credentials(rig: &Rig, text: &str) -> String {
    let file = rig.place.join("auth");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file.display().to_string()
}

fn through(address: SocketAddr, front: &Front, more: &[&str]) -> Vec<String> {
    let (proxy, ca) = (format!("http://{address}"), front.ca.display().to_string());
    let words = ["x", "--upstream-proxy", &proxy, "--ca-file", &ca];
    words.iter().chain(more).map(ToString::to_string).collect()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// The proxy gets the password, the provider the key. The password stands in the environment of openssl, and nowhere else: not in any
/// process's arguments, not in the box, not in what the run writes.
#[test]
fn a_run_through_a_proxy() {
    let look = "seek() { grep -rsl \"$1\" . /tmp /etc /home /run /dev/shm /proc/[0-9]*/environ /proc/[0-9]*/cmdline; }; \
                seek 'prx-PASS[W]ORD' > hits; seek 'HO[M]E=' > homes; \
                cat /tmp/sanduk-test-*/auth >> hits 2>/dev/null; true";
    let (rig, front) = behind_tls(&[look, WAITS]);
    let auth = credentials(&rig, &format!("joe:{PASSWORD}\n"));
    let proxy = connect::proxy(|_| Some("200 Connection established"), &front.port.to_string());
    let more = ["--upstream-proxy-auth", &auth, "--log-dir", "logs", "--log-bodies"];
    let run = rig.start(&words(&through(proxy.0, &front, &more)));
    let hits = |family: &[u32]| {
        let all = list(Path::new("/proc"));
        let pids = all.iter().filter_map(|p| p.file_name()?.to_str()?.parse::<u32>().ok());
        let holds = |text: &str| text.contains(PASSWORD) || text.contains(BASIC);
        for pid in pids {
            assert!(!holds(&of(pid, "cmdline")), "{}", of(pid, "cmdline"));
            if holds(&of(pid, "environ")) {
                let ours = family.contains(&pid) && of(pid, "cmdline").contains("\ns_client\n");
                assert!(ours, "{pid}: {}", of(pid, "cmdline"));
                assert_eq!(of(pid, "environ"), format!("SANDUK_PROXY_PASSWORD={PASSWORD}\n"));
            }
        }
        let clients: Vec<&u32> =
            family.iter().filter(|p| of(**p, "cmdline").contains("\ns_client\n")).collect();
        assert!(!clients.is_empty(), "no openssl");
        // An openssl of root's relay is a user of its own, whom nobody but root can look at.
        assert!(clients.iter().all(|p| of(**p, "environ").contains(PASSWORD)), "the test sees nothing");
        assert_eq!(written(&rig), "./auth\n", "files with the password");
    };
    let done = meanwhile(&rig, run, hits).code(0);
    assert!(!done.err.contains(PASSWORD) && !done.err.contains(BASIC), "{}", done.err);
    let found = |name: &str| std::fs::read_to_string(rig.work.join(name)).unwrap();
    assert_eq!(found("hits"), "", "the box has the password");
    assert!(found("homes").contains("/environ"), "the box did not look: {}", found("homes"));
    let asked = proxy.1.lock().unwrap().clone();
    let head = format!("CONNECT localhost:{} HTTP/1.", front.port);
    assert!(!asked.is_empty() && asked.iter().all(|a| a.starts_with(&head)), "{asked:?}");
    for one in &asked {
        assert!(one.contains(&format!("Proxy-Authorization: Basic {BASIC}\r\n")) && !one.contains(KEY));
    }
    assert!(!rig.heads().contains("roxy") && rig.bodies().len() == 3, "{}", rig.heads());
    assert_eq!(written(&rig), "./auth\n", "files with the password");
    rig.assert_clean();
}

/// Files below the rig's place that hold the password, unpacked where they are packed; a line each.
fn written(rig: &Rig) -> String {
    let look = "find . -type f | while read -r f; do gzip -cdfq \"$f\" 2>/dev/null | grep -qaF -e \"$1\" -e \"$2\" && echo \"$f\"; done";
    let mut command = Command::new("sh");
    command.args(["-c", look, "sh", PASSWORD, BASIC]).current_dir(&rig.place);
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

/// What is wrong with a proxy is said before the box starts: exit 2, one line, not a byte of a password.
#[test]
fn a_proxy_that_does_not_work() {
    let (rig, front) = behind_tls(&[]);
    let right = |head: &str| match head.contains(BASIC) {
        true => Some("200 OK"),
        false => Some("407 Proxy Authentication Required"),
    };
    let (address, asked) = connect::proxy(right, &front.port.to_string());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong = credentials(&rig, "joe:prx-OTHER\n");
    let missing = rig.place.join("none").display().to_string();
    for (at, more, why) in [
        (address, &[][..], "the proxy wants credentials"),
        (address, &["--upstream-proxy-auth", &wrong], "the proxy wants credentials"),
        (nobody, &[], "refused"),
        (address, &["--upstream-proxy-auth", &missing], "No such file"),
    ] {
        let done = rig.run(&words(&through(at, &front, more))).code(2).says(why);
        assert!(!done.err.contains("prx-"), "{}", done.err);
        assert_eq!(done.err.lines().filter(|l| l.starts_with("sanduk: ")).count(), 1, "{}", done.err);
        rig.assert_clean();
    }
    assert!(asked.lock().unwrap().len() >= 2 && rig.requests() == 0, "{}", rig.heads());
    // In plain sight.
    let dry = rig.run(&words(&through(address, &front, &["--upstream-proxy-auth", &wrong, "--dry-run"])));
    let dry = dry.code(0);
    assert!(!format!("{}{}", dry.out, dry.err).contains("prx-OTHER"), "{}", dry.out);
}

/// A stunnel; it ends when dropped.
struct Stunnel {
    child: Child,
    socket: PathBuf,
}

impl Stunnel {
    fn end(&mut self) {
        // It may be a shell's child: the whole group, which is its own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("/bin/kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

impl Drop for Stunnel {
    fn drop(&mut self) {
        self.end();
    }
}

/// Its program; `None`, and said, where there is none on this machine.
fn program() -> Option<&'static str> {
    let found = ["/usr/bin/stunnel", "/usr/bin/stunnel4"].into_iter().find(|p| Path::new(p).exists());
    if found.is_none() {
        skipped("a run through stunnel: no stunnel");
    }
    found
}

/// Who a command is: root's own, or another user by setpriv(1).
fn by(user: Option<u32>, program: &Path) -> Command {
    let Some(uid) = user else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]).arg(program);
    command
}

/// Starts a stunnel as the text of `sanduk stunnel-conf` says that one is started, but for what `instead` exchanges in it. `binary` is
/// a `sanduk` that the user can run.
fn stunnel(rig: &Rig, front: &Front, user: Option<u32>, binary: &Path, instead: (&str, &str)) -> Stunnel {
    let dir = rig.place.join(if user.is_some() { "theirs" } else { "st" });
    let socket = dir.join("up.sock");
    let out = by(user, binary)
        .args(["stunnel-conf", "anthropic", "--listen", &format!("unix:{}", socket.display())])
        .args(["--upstream", rig.upstream.as_deref().unwrap(), "--ca-file", front.ca.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let how = text.lines().find_map(|l| l.strip_prefix(";   ")).expect("how it is started");
    let conf = rig.place.join("stunnel.conf");
    std::fs::write(&conf, &text).unwrap();
    let how = how.replace("stunnel FILE", &format!("{} {}", program().unwrap(), conf.display()));
    let how = how.replace(instead.0, instead.1);
    let mut command = by(user, Path::new("/bin/sh"));
    command.args(["-c", &how]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Stunnel { child: command.process_group(0).spawn().unwrap(), socket };
    let end = Instant::now() + PATIENCE;
    while !started.socket.exists() {
        assert!(Instant::now() < end, "stunnel does not start: {how}\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    started
}

fn asked(stunnel: &Stunnel) -> String {
    format!("stunnel:unix:{}", stunnel.socket.display())
}

fn ours() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sanduk"))
}

/// What is printed works: the confined relay, which as root is a user of its own, reaches the socket, and starts no openssl.
#[test]
fn a_run_through_stunnel() {
    if program().is_none() {
        return;
    }
    let (rig, front) = behind_tls(&[WAITS, "ls -R / 2>/dev/null | grep -cF up.sock > found"]);
    let stunnel = stunnel(&rig, &front, None, &ours(), ("", ""));
    let run = rig.start(&["x", "--tls", &asked(&stunnel), "--log-dir", "logs", "--log-bodies"]);
    let done = meanwhile(&rig, run, |family| {
        let facts = of(relay(family), "status");
        let fact = |name: &str| {
            let line = facts.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
            line.split_ascii_whitespace().next().unwrap().to_string()
        };
        assert_eq!(fact("Seccomp:"), "2", "the relay is not confined");
        assert_ne!(fact("Uid:"), "0", "root's relay is root");
        assert!(!family.iter().any(|p| of(*p, "cmdline").contains("s_client")), "an openssl");
    });
    done.code(0).says(&format!("--tls stunnel: who is at {} gets the key", stunnel.socket.display()));
    assert_eq!(std::fs::read_to_string(rig.work.join("found")).unwrap(), "0\n", "the socket is in the box");
    assert_eq!(rig.bodies().len(), 3);
    let hits = Command::new("grep").args(["-rl", KEY]).args([&rig.state, &rig.work]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&hits.stdout), "");
    rig.assert_clean();
}

/// A socket that root's relay could not reach, because it is a user of its own: one line that says what to do, before anything starts.
#[test]
fn a_socket_that_the_relay_could_not_reach() {
    if program().is_none() {
        return;
    }
    if !root() {
        return skipped("a stunnel of root's that shuts others out: only root's relay is another user");
    }
    for instead in [("umask 000", "umask 077"), ("-m 0711", "-m 0700")] {
        let (rig, front) = behind_tls(&[]);
        let stunnel = stunnel(&rig, &front, None, &ours(), instead);
        let done = rig.run(&["x", "--tls", &asked(&stunnel)]).code(2).says("stunnel-conf").says("umask 000");
        assert_eq!(done.err.lines().filter(|l| l.starts_with("sanduk: ")).count(), 1, "{}", done.err);
        assert_eq!(rig.requests(), 0);
        rig.assert_clean();
    }
    // One that the box could put its own in place of.
    let (rig, _front) = behind_tls(&[]);
    let inside = rig.work.join("up.sock");
    let _held = std::os::unix::net::UnixListener::bind(&inside).unwrap();
    rig.run(&["x", "--tls", &format!("stunnel:unix:{}", inside.display())]).code(2).says("the box can write");
}

/// An ordinary user with a stunnel of their own: nobody else can reach it, and their relay can.
#[test]
fn an_ordinary_user_with_a_stunnel() {
    if program().is_none() || !root() {
        // Then the run through stunnel has been one.
        return;
    }
    let (rig, front) = behind_tls(&[]);
    let binary = rig.place.join("sanduk");
    std::fs::copy(ours(), &binary).unwrap();
    for dir in [&rig.state, &rig.place.join("theirs"), &rig.work] {
        let _ = std::fs::create_dir(dir);
        chown(dir, Some(ELSE), Some(ELSE)).unwrap();
    }
    let stunnel = stunnel(&rig, &front, Some(ELSE), &binary, ("", ""));
    let plain = rig.command(&["x", "--tls", &asked(&stunnel)]);
    let mut run = by(Some(ELSE), &binary);
    run.args(plain.get_args()).env_clear().current_dir(&rig.place).stdin(Stdio::null());
    run.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    ran(run.output().unwrap()).code(0);
    assert_eq!(rig.bodies().len(), 1);
    // Root's relay would be a third user.
    rig.run(&["x", "--tls", &asked(&stunnel)]).code(2).says("others can put a socket of their own there");
    rig.assert_clean();
}

/// A stunnel that goes away while the agent works: the next call fails with the reason, the run ends, and nothing waits.
#[test]
fn a_stunnel_that_goes_away() {
    if program().is_none() {
        return;
    }
    let (rig, front) = behind_tls(&[WAITS]);
    let mut stunnel = stunnel(&rig, &front, None, &ours(), ("", ""));
    let run = rig.start(&["x", "--tls", &asked(&stunnel), "--retry-for", "0"]);
    meanwhile(&rig, run, |_| stunnel.end()).code(1).says("cannot be reached");
    rig.assert_clean();
}
