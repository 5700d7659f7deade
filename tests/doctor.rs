//! `sanduk doctor`, as typed: as root and as an ordinary user, with nothing on PATH, with a dead daemon, with a state directory that will
//! not do. What it says of this host is compared with what this host is.
#![expect(clippy::disallowed_methods, reason = "tests")]

use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = PathBuf::from(format!("/tmp/sanduk-doctor-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Place(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.arg("doctor").args(args).env_clear().env("HOME", &self.0);
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}\n{}", ran.out, ran.err))
}

#[track_caller]
fn line<'a>(answer: &'a Value, what: &str) -> &'a Value {
    let all = answer["lines"].as_array().unwrap();
    all.iter().find(|l| l["what"] == what).unwrap_or_else(|| panic!("no {what} in {answer}"))
}

#[track_caller]
fn says(answer: &Value, what: &str, state: &str, part: &str) {
    let line = line(answer, what);
    assert_eq!(line["state"], state, "{line}");
    assert!(line.to_string().contains(part), "no {part:?} in {line}");
}

fn root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn this_host() {
    let place = Place::new("host");
    let done = ran(&mut place.command(&["--json"]));
    let answer = json(&done);
    assert_eq!((done.code, &answer["schema"]), (Some(0), &Value::from(1)), "{}", done.out);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    says(&answer, "kernel", "ok", release.trim());
    says(&answer, "seccomp", "ok", "filters");
    says(&answer, "openssl", "ok", "OpenSSL 3.");
    says(&answer, "state directory", "ok", "not made yet");
    says(&answer, "bwrap", "ok", "/bwrap");
    says(&answer, "clock", "ok", "");
    says(&answer, "disk", "ok", "MiB in /tmp");
    says(&answer, "pidfd", "ok", "");
    says(&answer, "user", if root() { "ok" } else { "weaker" }, "uid");
    assert!(answer["engines"].as_array().unwrap().contains(&"bwrap".into()), "{answer}");
    // Every line that is not ok says what follows from it.
    for line in answer["lines"].as_array().unwrap() {
        assert_eq!(line["state"] == "ok", line["so"] == "", "{line}");
    }
    assert!(!place.0.join(".local").exists(), "it made something");
    let table = ran(&mut place.command(&[])).out;
    assert!(table.starts_with("ok      kernel") && table.contains("\na sealed run works on "), "{table}");
}

/// What the kernel's own headers say of an ABI is what the lines say.
#[test]
fn landlock_by_rule() {
    let place = Place::new("landlock");
    let answer = json(&ran(&mut place.command(&["--json"])));
    let first = line(&answer, "landlock");
    if first["state"] == "ok" {
        let got = first["got"].as_str().unwrap();
        let abi: u32 = got.strip_prefix("ABI ").unwrap().split(':').next().unwrap().parse().unwrap();
        says(&answer, "landlock TCP", if abi >= 4 { "ok" } else { "weaker" }, "");
        says(&answer, "landlock scope", if abi >= 6 { "ok" } else { "weaker" }, "");
    } else {
        assert_eq!(first["state"], "weaker");
    }
}

#[test]
fn no_engine_at_all() {
    let place = Place::new("none");
    let done = ran(place.command(&["--json"]).env("PATH", "/nowhere"));
    let answer = json(&done);
    assert_eq!(done.code, Some(4), "{}", done.out);
    assert_eq!(answer["engines"], Value::from(Vec::<String>::new()));
    says(&answer, "docker", "missing", "not on PATH");
    says(&answer, "bwrap", "missing", "install the package bubblewrap");
    // Not from PATH: what sees the key is found in fixed directories.
    says(&answer, "openssl", "ok", "/openssl");
    let table = ran(place.command(&[]).env("PATH", "/nowhere"));
    assert!(table.out.ends_with("\na sealed run would not work here\n"), "{}", table.out);
}

#[test]
fn a_dead_daemon() {
    let place = Place::new("dead");
    let bin = place.0.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("docker"), "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = place.command(&["--json"]);
    command.env("PATH", &bin).env("DOCKER_HOST", "unix:///tmp/nobody-listens-here.sock");
    let done = ran(&mut command);
    let answer = json(&done);
    assert_eq!(done.code, Some(4), "{}", done.out);
    says(&answer, "docker", "missing", "the daemon does not answer");
    says(&answer, "docker", "missing", "systemctl start docker");
    for (host, part) in
        [("tcp://192.0.2.1:2375", "not on this host"), ("unix:///run/user/1000/docker.sock", "rootless")]
    {
        let answer = json(&ran(place.command(&["--json"]).env("DOCKER_HOST", host).env("PATH", &bin)));
        says(&answer, "docker", "missing", part);
    }
    // One that listens and then says no more than that it is broken.
    let socket = place.0.join("d.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let host = format!("unix://{}", socket.display());
    let answer = json(&ran(place.command(&["--json"]).env("DOCKER_HOST", host).env("PATH", &bin)));
    says(&answer, "docker", "missing", "no box on docker");
}

/// Names of keys and never a byte of one; a state directory that will not do stops every engine.
#[test]
fn keys_and_state() {
    let place = Place::new("state");
    let mut command = place.command(&["--json"]);
    let done = ran(command.env("ANTHROPIC_API_KEY", "sk-ant-DOCTOR").env("OPENAI_API_KEY", "sk-DOCTOR"));
    let answer = json(&done);
    says(&answer, "provider keys", "ok", "ANTHROPIC_API_KEY");
    says(&answer, "provider keys", "ok", "OPENAI_API_KEY");
    assert!(!done.out.contains("DOCTOR"), "{}", done.out);
    says(&json(&ran(&mut place.command(&["--json"]))), "provider keys", "weaker", "--key-file");

    let open = place.0.join("open/sanduk");
    std::fs::create_dir_all(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
    let done = ran(place.command(&["--json"]).env("XDG_STATE_HOME", place.0.join("open")));
    says(&json(&done), "state directory", "weaker", "chmod 700");

    std::fs::write(place.0.join("file"), "").unwrap();
    let done = ran(place.command(&["--json"]).env("XDG_STATE_HOME", place.0.join("file")));
    says(&json(&done), "state directory", "missing", "XDG_STATE_HOME");
    assert_eq!(done.code, Some(4), "{}", done.out);
    let done = ran(place.command(&["--json"]).env_remove("HOME"));
    says(&json(&done), "state directory", "missing", "set HOME");
}

#[test]
fn an_ordinary_user() {
    if !root() {
        // Then everything above has been it.
        return;
    }
    let place = Place::new("user");
    chown(&place.0, Some(4242), Some(4242)).unwrap();
    let copy = place.0.join("sanduk");
    std::fs::copy(env!("CARGO_BIN_EXE_sanduk"), &copy).unwrap();
    let mut command = Command::new("/usr/bin/setpriv");
    command
        .args(["--reuid", "4242", "--regid", "4242", "--clear-groups"])
        .arg(&copy)
        .args(["doctor", "--json"]);
    command
        .env_clear()
        .env("HOME", &place.0)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null());
    let done = ran(&mut command);
    let answer = json(&done);
    assert_eq!(done.code, Some(0), "{}", done.out);
    says(&answer, "user", "weaker", "uid 4242");
    if Path::new("/var/run/docker.sock").exists() {
        says(&answer, "docker", "missing", "permission denied");
        says(&answer, "docker", "missing", "group docker");
        assert_eq!(answer["engines"], Value::from(vec!["bwrap"]));
    }
    // Somebody else's home.
    let done = ran(command.env("XDG_STATE_HOME", "/root/x"));
    says(&json(&done), "state directory", "missing", "");
}
