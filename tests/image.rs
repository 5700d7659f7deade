//! `sanduk build`: what it refuses, what it tells the engine, what it leaves. The engine is a recording stand-in; with the real one,
//! a small image is built from the base that `make image-base` makes.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

use sanduk::catalog::images;
use sanduk::run::image;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory of a test, removed at its end, and the socket of a daemon that says nothing.
struct Place(PathBuf, #[expect(dead_code, reason = "open as long as the test")] UnixListener);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/sanduk-image-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let daemon = UnixListener::bind(path.join("docker.sock")).unwrap();
        Place(path, daemon)
    }

    /// A `docker` on PATH that writes down its arguments, its environment and its context, and does what `script` says.
    fn engine(&self, script: &str) -> &Place {
        let text = format!(
            "#!/bin/sh\nexec 9>>{0}/calls; echo \"$@\" >&9; env >{0}/env; shift 4\ncase \"$1 $2\" in\n\
             \"image inspect\") [ -e {0}/has ] || {{ echo 'Error: No such image: x' >&2; exit 1; }}; echo 'sha256:aa 1'; exit 0 ;;\n\
             \"image prune\") exit 0 ;;\nesac\n\
             for last; do :; done; ls $last >{0}/context; cp $last/* {0}/; {script}\n",
            self.0.display()
        );
        std::fs::write(self.0.join("docker"), text).unwrap();
        std::fs::set_permissions(self.0.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.arg("build").args(args).current_dir(&self.0).stdin(Stdio::null());
        command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", self.0.display()));
        command
            .env("HOME", &self.0)
            .env("HTTPS_PROXY", "http://user:pass@proxy")
            .env("DOCKER_HOST", self.endpoint());
        command
    }

    fn endpoint(&self) -> String {
        format!("unix://{}/docker.sock", self.0.display())
    }

    fn build(&self, args: &[&str]) -> (Option<i32>, String) {
        said(self.command(args).output().unwrap())
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn has(&self, name: &str) -> &Place {
        std::fs::write(self.0.join(name), "").unwrap();
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(output: Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Contexts that the process `pid` left.
fn left(pid: u32) -> usize {
    let mine = format!("sanduk-build-{pid}-");
    std::fs::read_dir("/tmp")
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(&mine))
        .count()
}

#[test]
fn refusals_name_the_flag() {
    let place = Place::new();
    place.engine("exit 0");
    std::fs::write(place.0.join("Own"), "FROM x\n").unwrap();
    for (args, words) in [
        (&["--agent", "codex"][..], "claude, mini"),
        (&["--image", "sanduk-mini:1"], "not the name of an image of agent claude"),
        (&["--image", "-v"], "a letter or digit first"),
        (&["--base", "--privileged"], "a letter or digit first"),
        (&["--containerfile", "Own"], "a name of its own"),
        (&["--containerfile", "None", "--image", "own"], "No such file"),
        (&["--containerfile", "Own", "--image", "own", "--base", "b"], "no ARG BASE"),
        (&["task"], "takes no operand"),
    ] {
        let (code, err) = place.build(args);
        assert!(
            code == Some(2) && err.contains(words) && err.lines().count() == 1,
            "{args:?}: {code:?} {err}"
        );
    }
    assert_eq!(place.file("calls"), "", "nothing was started");
    std::fs::remove_file(place.0.join("docker")).unwrap();
    let mut command = place.command(&[]);
    let (code, err) = said(command.env("PATH", &place.0).output().unwrap());
    assert!(code == Some(4) && err.contains("docker"), "{err}");
}

/// CHECKLIST L1: it is there, and nobody insists.
#[test]
fn already_built() {
    let place = Place::new();
    place.engine("exit 1").has("has");
    let (code, err) = place.build(&["--agent", "mini"]);
    assert!(code == Some(0) && err.contains("already built"), "{err}");
    assert_eq!(place.file("calls").lines().count(), 1);
}

/// What goes to the engine: two files of ours and no more; nothing of our environment, directory or client configuration.
#[test]
fn the_context_is_ours() {
    let place = Place::new();
    place
        .engine("echo 'Step 1/1'; printf 'evil \\033[2J\\n' >&2; touch $(dirname $0)/has; exit 0")
        .has("secret-of-the-directory");
    let (code, err) = place.build(&["--agent", "claude", "--base", "base:1"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("Step 1/1") && err.contains("built sanduk-claude:"), "{err}");
    assert!(!err.contains('\u{1b}') && err.contains("evil \\u{1b}"), "{err}");
    assert_eq!(place.file("context"), "Containerfile\nhost-ca.crt\n");
    assert_eq!(place.file("Containerfile"), images::shipped("claude").unwrap());
    let env = place.file("env");
    assert!(!env.contains("PROXY") && !env.contains("DOCKER_HOST") && !env.contains("HOME"), "{env}");
    let calls = place.file("calls");
    for call in calls.lines() {
        let config = call.split(' ').nth(1).unwrap();
        assert!(
            config.starts_with("/tmp/sanduk-build-") || config == "/run/sanduk/no-configuration",
            "{call}"
        );
        assert!(call.contains(&format!(" -H {} ", place.endpoint())), "{call}");
    }
    let stage = calls.split("BUILD=").nth(1).and_then(|rest| rest.get(..16)).unwrap();
    assert!(calls.contains(&format!("label=sanduk.stage={stage}")), "the fetching stage goes: {calls}");
}

#[test]
fn a_failed_build_says_why() {
    for (script, words) in [
        ("echo 'Get \"https://r/v2/\": dial tcp: lookup r: no such host' >&2; exit 1", "make image-base"),
        ("echo 'pull access denied for x' >&2; exit 1", "make image-base"),
        ("echo 'write /x: no space left on device' >&2; exit 1", "make room"),
        ("echo 'the step failed'; exit 100", "the step failed"),
    ] {
        let place = Place::new();
        let (code, err) = place.engine(script).build(&["--agent", "mini", "--base", "b"]);
        let last = err.lines().last().unwrap_or_default();
        assert!(code == Some(4) && last.starts_with("sanduk: cannot build") && last.contains(words), "{err}");
    }
    // A daemon that does not answer is no missing image.
    let place = Place::new();
    let text =
        "#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1\n";
    std::fs::write(place.0.join("docker"), text).unwrap();
    std::fs::set_permissions(place.0.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    let (code, err) = place.build(&["--agent", "mini"]);
    assert!(code == Some(4) && err.contains("systemctl start docker"), "{err}");
    for (host, words) in
        [("unix:///nowhere/docker.sock", "start docker"), ("tcp://far:1", "not on this host")]
    {
        let (code, err) = said(place.command(&[]).env("DOCKER_HOST", host).output().unwrap());
        assert!(code == Some(4) && err.contains(words) && err.contains(host), "{err}");
    }
}

/// A signal ends the engine's client too, and nothing of ours is left; after `kill -9` the next build removes it.
#[test]
fn killed_builds_leave_nothing() {
    for (signal, code) in [("TERM", Some(143)), ("KILL", None)] {
        let place = Place::new();
        place.engine(&format!("echo $$ >{}/pid; exec sleep 600", Path::new(".").display())).has("x");
        let mut engine = place.file("docker");
        engine = engine.replace("./pid", &place.0.join("pid").display().to_string());
        std::fs::write(place.0.join("docker"), engine).unwrap();
        let mut child =
            place.command(&["--agent", "mini", "--base", "b"]).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while place.file("pid").is_empty() {
            assert!(Instant::now() < until, "the engine was not started");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(left(child.id()), 1);
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), code);
        let engine = format!("/proc/{}", place.file("pid").trim());
        while Path::new(&engine).exists() {
            assert!(Instant::now() < until, "the engine's client lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
        if signal == "KILL" {
            // Or the build of a test beside this one.
            place.engine("exit 0").build(&["--agent", "mini", "--base", "b"]);
        }
        assert_eq!(left(child.id()), 0, "{signal}");
    }
}

/// `audit/argv.txt`, word for word.
#[test]
fn docker_argv() {
    let ledger =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/argv.txt")).unwrap();
    let all: Vec<&str> = ledger.lines().collect();
    let ours = |l: &&str| l.starts_with("EXEC-44 docker | ") || l.contains("{{len .RepoTags}}");
    let rows: Vec<&str> = all.into_iter().filter(ours).filter_map(|l| Some(l.split_once(" | ")?.1)).collect();
    let (dir, endpoint) = (Path::new("/D"), "unix:///E");
    let shown = |args: Vec<String>| args.join(" ").replace("/D/context", "CONTEXT");
    assert_eq!(image::global(dir, endpoint), ["--config", "/D/config", "-H", endpoint]);
    let forms = [
        image::inspect("TAG"),
        image::argv("TAG", Some("BASE"), "STAGE", dir, false),
        image::argv("TAG", Some("BASE"), "STAGE", dir, true),
        image::argv("TAG", None, "STAGE", dir, false),
        image::prune("STAGE"),
        image::remove("ID"),
    ];
    assert_eq!(rows, forms.map(shown));
}

/// The real engine: mini's image from the local base, twice; an image of one's own; nothing is left but what was asked for.
#[test]
fn a_real_build() {
    let there = Command::new("docker").args(["image", "inspect", images::LOCAL_BASE]).output();
    if !there.is_ok_and(|o| o.status.success()) {
        println!("skipped: no docker, or no {} (make image-base)", images::LOCAL_BASE);
        return;
    }
    let place = Place::new();
    let build = |args: &[&str]| said(place.command(args).env_remove("DOCKER_HOST").output().unwrap());
    let (mini, own_tag) =
        (format!("sanduk-mini:test-{}", std::process::id()), format!("own-{}", std::process::id()));
    let own = "FROM scratch\nCOPY host-ca.crt /ca\nLABEL made=of\n";
    std::fs::write(place.0.join("Own"), own).unwrap();
    let (code, err) = build(&["--agent", "mini", "--image", &mini]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("it is the base"), "{err}");
    let tools = "for t in git rg curl jq python3; do command -v $t || exit 1; done; ls -d /work";
    let run = ["run", "--rm", "--network", "none", "--user", "4242:4242", "--read-only", &mini, "sh", "-c"];
    let ran = Command::new("docker").args(run).arg(tools).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && out.contains("/work"), "{out}");
    let (code, err) = build(&["--agent", "mini", "--image", &mini]);
    assert!(code == Some(0) && err.contains("already built"), "{err}");
    let (code, err) = build(&["--containerfile", "Own", "--image", &own_tag]);
    assert_eq!(code, Some(0), "{err}");
    for image in [&mini, &own_tag] {
        let gone = Command::new("docker").args(["image", "rm", image]).output().unwrap();
        assert!(gone.status.success(), "{image}");
    }
}
