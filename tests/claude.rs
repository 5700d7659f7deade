//! The real Claude Code, from the image that `sanduk build` makes, in a container without a network, against a scripted provider. Its
//! turn is rendered from the shipped agent file and its output read by the shipped rules; what stands in for box and relay is a byte
//! pipe (`python3` inside, a thread outside), so that only the agent itself is under test (whole runs: `claude_run.rs`). Skipped, with a
//! line, without image.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

use sanduk::catalog::agents::{self, TurnInput};
use sanduk::catalog::images;
use sanduk::catalog::providers::Protocol;
use sanduk::run::read::{Outcome, Reader, Trace};
use sanduk::wire::control::{Line, TurnEnd, What};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[path = "support/provider.rs"]
#[expect(dead_code, reason = "its own program uses the rest")]
mod provider;

/// Owner of the work directory where the tests are root's; else it is ours.
const USER: u32 = 61_007;

/// In the box: what `inside` is to a real run. No more than bytes from a port to a socket.
const FORWARD: &str = r#"
import os, socket, sys, threading
def pump(a, b):
    try:
        while True:
            d = a.recv(65536)
            if not d: break
            b.sendall(d)
    except OSError: pass
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
def serve():
    while True:
        c, _ = port.accept()
        d = socket.socket(socket.AF_UNIX); d.connect('/channel/relay.sock')
        for pair in ((c, d), (d, c)): threading.Thread(target=pump, args=pair, daemon=True).start()
port = socket.socket(); port.bind(('127.0.0.1', 4000)); port.listen(64)
threading.Thread(target=serve, daemon=True).start()
import subprocess
sys.exit(subprocess.run(sys.argv[1:], timeout=120).returncode)
"#;

struct Rig {
    place: PathBuf,
    work: PathBuf,
    user: u32,
    seen: Arc<Mutex<Vec<Value>>>,
}

/// One turn, as read by the shipped rules.
struct Ran {
    outcome: Outcome,
    trace: Vec<Trace>,
    code: Option<i32>,
    all: String,
}

/// The image, or a line that says why there is no test.
fn image() -> Option<String> {
    let tag = images::tag("claude");
    match Command::new("docker").args(["image", "inspect", &tag]).output() {
        Ok(output) if output.status.success() => Some(tag),
        Ok(_) => {
            println!("skipped: no image {tag} (sanduk build), or docker does not answer");
            None
        }
        Err(_) => {
            println!("skipped: no docker");
            None
        }
    }
}

/// Replies: a command each, then a text.
fn script(commands: &[&str], last: &str) -> String {
    let mut replies: Vec<Value> = commands
        .iter()
        .map(|c| json!({"tools": [{"name": "Bash", "input": {"command": c, "description": "d"}}]}))
        .collect();
    replies.push(json!({"text": last}));
    json!({"order": "turn", "end": "last", "replies": replies}).to_string()
}

impl Rig {
    fn new(script: &str) -> Rig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = PathBuf::from(format!("/tmp/sanduk-claude-test-{}-{n}", std::process::id()));
        let (work, channel) = (place.join("work"), place.join("channel"));
        for dir in [&place, &work, &channel] {
            std::fs::create_dir(dir).unwrap();
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&seen);
        let record = Box::new(move |line: &str| to.lock().unwrap().push(serde_json::from_str(line).unwrap()));
        let address = provider::start("127.0.0.1:0", script, record).unwrap();
        let listener = UnixListener::bind(channel.join("relay.sock")).unwrap();
        std::fs::set_permissions(channel.join("relay.sock"), PermissionsExt::from_mode(0o666)).unwrap();
        std::thread::spawn(move || {
            for conn in listener.incoming().flatten() {
                pipe(conn, TcpStream::connect(address).unwrap());
            }
        });
        let ours = std::fs::metadata("/proc/self").unwrap().uid();
        let rig = Rig { place, work, user: if ours == 0 { USER } else { ours }, seen };
        if ours == 0 {
            chown(&rig.work, Some(USER), Some(USER)).unwrap();
        }
        rig
    }

    /// A container of the image as a sealed run has it, with `args` as its command.
    fn container(&self, user: u32, env: &[(String, String)], args: &[String]) -> Command {
        let mut command = Command::new("docker");
        command.args([
            "run",
            "--rm",
            "-i",
            "--pull",
            "never",
            "--network",
            "none",
            "--read-only",
            "--cap-drop",
            "ALL",
        ]);
        command.args(["--security-opt", "no-new-privileges", "--log-driver", "none", "--workdir", "/work"]);
        command.args(["--tmpfs", "/tmp:exec,mode=1777", "--tmpfs", "/home/agent:exec,mode=1777"]);
        command.args(["--user", &format!("{user}:{user}")]);
        for (from, to) in [("work", "/work"), ("channel", "/channel")] {
            command.args(["--mount", &format!("type=bind,src={},dst={to}", self.place.join(from).display())]);
        }
        for (name, value) in env {
            command.args(["--env", &format!("{name}={value}")]);
        }
        command.arg(images::tag("claude")).args(args);
        command
    }

    /// A shell in the box, as the owner of the work directory.
    fn shell(&self, text: &str) -> String {
        let home = [("HOME".to_string(), "/tmp".to_string())];
        let output =
            self.container(self.user, &home, &["sh", "-euc", text].map(str::to_string)).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        out
    }

    fn input<'a>(&self, task: &'a str) -> TurnInput<'a> {
        TurnInput {
            id: "t1",
            task,
            protocol: Protocol::Messages,
            base_url: "http://127.0.0.1:4000",
            token: "run-token",
            model: None,
            max_turns: None,
            effort: None,
            permission_mode: None,
            allowed_tools: None,
            bare: false,
            home: "/home/agent",
            root: false,
        }
    }

    fn turn(&self, input: &TurnInput<'_>) -> Ran {
        self.turn_without(input, &[])
    }

    /// The turn, its arguments without some.
    fn turn_without(&self, input: &TurnInput<'_>, without: &[&str]) -> Ran {
        let claude = agents::shipped("claude").unwrap();
        let turn = claude.render(input).unwrap();
        let mut args = ["python3", "-c", FORWARD].map(str::to_string).to_vec();
        args.extend(turn.argv.into_iter().filter(|a| !without.contains(&a.as_str())));
        let mut command = self.container(if input.root { 0 } else { self.user }, &turn.env, &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(turn.stdin.as_bytes()).unwrap();
        let output: Output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let mut reader = Reader::new(&claude);
        let mut trace = Vec::new();
        for line in out.lines() {
            trace.extend(reader.push(&What::Stdout(Line { text: line.into(), more: false })));
        }
        for line in err.lines() {
            trace.extend(reader.push(&What::Stderr(Line { text: line.into(), more: false })));
        }
        let code = output.status.code();
        trace.extend(reader.push(&What::TurnEnd(TurnEnd { turn: "t1".into(), code, signal: None })));
        let o = reader.outcome();
        let outcome =
            Outcome { text: o.text.clone(), error: o.error.clone(), session: o.session.clone(), ..*o };
        Ran { outcome, trace, code, all: format!("{out}{err}") }
    }

    /// Requests the provider got: method and target, header lines, body.
    fn requests(&self) -> Vec<(String, String, String)> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let seen = self.seen.lock().unwrap();
        let one = |r: &Value| {
            (
                format!("{} {}", text(&r["method"]), text(&r["target"])),
                r["headers"].to_string(),
                text(&r["body"]),
            )
        };
        seen.iter().map(one).collect()
    }

    fn made(&self, name: &str) -> bool {
        self.work.join(name).exists()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

fn pipe(one: UnixStream, other: TcpStream) {
    let (a, b) = (one.try_clone().unwrap(), other.try_clone().unwrap());
    std::thread::spawn(move || {
        copy(&one, &other);
        let _ = other.shutdown(Shutdown::Write);
    });
    std::thread::spawn(move || {
        copy(&b, &a);
        let _ = a.shutdown(Shutdown::Write);
    });
}

/// Byte by byte as it comes: `io::copy` would do, but for sockets it splices and waits.
fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buf = [0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buf) {
        if to.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

/// `sanduk build`: what is in the image, and what is not.
#[test]
fn the_image() {
    let Some(tag) = image() else { return };
    let rig = Rig::new(&script(&[], "x"));
    let home = [("HOME".to_string(), "/home/agent".to_string())];
    let version = rig.container(4242, &home, &["claude", "--version"].map(str::to_string)).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), "2.1.332 (Claude Code)");
    let out = rig.shell(
        "for t in git rg curl jq python3; do command -v $t; done; [ -s /etc/ssl/certs/ca-certificates.crt ]; [ ! -e /work/x ]; \
         ! command -v node; ! command -v npm; find / -xdev -name 'host-ca*' 2>/dev/null || true; ls /tmp",
    );
    assert_eq!(out, "/usr/bin/git\n/usr/bin/rg\n/usr/bin/curl\n/usr/bin/jq\n/usr/bin/python3\n");
    let config = Command::new("docker")
        .args(["image", "inspect", "--format", "{{json .Config}}", &tag])
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&config.stdout).unwrap();
    for none in ["Entrypoint", "Volumes", "Healthcheck", "ExposedPorts"] {
        assert!(config[none].is_null(), "{config}");
    }
    // BOX B13: a container has its image's labels; ours marks what may be removed.
    let labels = config["Labels"].as_object().cloned().unwrap_or_default();
    assert!(!labels.keys().any(|k| k.starts_with("sanduk")), "{config}");
}

/// A turn with a command: what the provider saw, what was read, whose the file is.
#[test]
fn a_turn() {
    let Some(_) = image() else { return };
    let rig = Rig::new(&script(&["id -u; echo hi > made.txt; cat made.txt"], "it is done"));
    let ran = rig.turn(&rig.input("do it"));
    assert!(ran.outcome.ok && ran.outcome.finished && ran.code == Some(0), "{}", ran.all);
    assert_eq!(
        (ran.outcome.text.as_str(), ran.outcome.input, ran.outcome.output),
        ("it is done", Some(200), Some(40))
    );
    assert!(
        ran.trace
            .iter()
            .any(|t| matches!(t, Trace::Tool(name, arg) if name == "Bash" && arg.starts_with("id -u")))
    );
    assert_eq!(std::fs::metadata(rig.work.join("made.txt")).unwrap().uid(), rig.user);
    let requests = rig.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    for (line, headers, body) in &requests {
        assert_eq!(line, "POST /v1/messages?beta=true", "no other address is asked");
        assert!(headers.contains("run-token"), "{headers}");
        let body: Value = serde_json::from_str(body).unwrap();
        let tools: Vec<&str> =
            body["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
        for tool in ["Bash", "Read", "Write", "Edit", "Glob", "Grep"] {
            assert!(tools.contains(&tool), "{tools:?}");
        }
        assert!(!tools.iter().any(|t| t.starts_with("Web")), "{tools:?}");
    }
    assert!(
        requests[1].2.contains(&format!("{}\\nhi", rig.user)),
        "the result of the command: {}",
        requests[1].2
    );
}

/// A workspace that wants to steer: settings with another address, key, model and hooks, MCP servers, agents, skills, commands,
/// instruction files, what the program's own runtime would load, and git's programs.
const HOSTILE: &str = include_str!("support/hostile.sh");

/// The promise of the workspace that steers nothing, and that the test would see it if it did.
#[test]
fn a_hostile_workspace_steers_nothing() {
    let Some(_) = image() else { return };
    let rig = Rig::new(&script(&["env; ls"], "it is done"));
    rig.shell(HOSTILE);
    let ran = rig.turn(&rig.input("/evil do it"));
    assert!(ran.outcome.ok, "{}", ran.all);
    let steered = |rig: &Rig| -> Vec<String> {
        let names =
            std::fs::read_dir(&rig.work).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("STEERED")).collect()
    };
    assert_eq!(steered(&rig), Vec::<String>::new());
    let requests = rig.requests();
    assert_eq!(requests.len(), 2);
    for (line, headers, body) in &requests {
        assert_eq!(line, "POST /v1/messages?beta=true");
        assert!(!headers.contains("evil") && headers.contains("run-token"), "{headers}");
        // The names of the files stand in the result of `ls`; what is in them nowhere.
        for word in ["EVIL-WORDS", "EVIL_ENV", "evil-model", "127.0.0.1:9"] {
            assert!(!body.contains(word), "{word} in {body}");
        }
    }
    assert!(!ran.all.contains("EVIL_ENV") && !ran.all.contains("evil-model"), "{}", ran.all);

    // The same without what switches the workspace off.
    let rig = Rig::new(&script(&["true"], "it is done"));
    rig.shell(HOSTILE);
    let ran = rig.turn_without(&rig.input("do it"), &["--setting-sources", "", "--strict-mcp-config"]);
    assert!(!steered(&rig).is_empty() && rig.requests().is_empty(), "the control is steered: {}", ran.all);
}

/// TRAPS 85: whatever a task begins with, it is words for the model.
#[test]
fn trap_85_a_task_is_no_command() {
    let Some(_) = image() else { return };
    for task in ["/help", "/init", "--help", "!touch STEERED", "#remember"] {
        let rig = Rig::new(&script(&[], "it is done"));
        let ran = rig.turn(&rig.input(task));
        assert!(ran.outcome.ok && ran.outcome.text == "it is done", "{task}: {}", ran.all);
        let body = &rig.requests()[0].2;
        assert!(body.contains(&format!("\\n{task}\"")), "{task}: {body}");
        assert!(!rig.made("STEERED"));
    }
}

/// Endings: each in its own words, and the exit code is not what decides.
#[test]
fn endings() {
    let Some(_) = image() else { return };
    let rig = Rig::new(&script(&["true", "true", "true"], "x"));
    let ran = rig.turn(&TurnInput { max_turns: Some(2), ..rig.input("go") });
    assert!(ran.outcome.max_turns && ran.outcome.finished && !ran.outcome.ok, "{}", ran.all);
    assert_eq!(rig.requests().len(), 2);
    for (status, words, calls) in [(402, "over the budget", 1), (403, "not you", 1), (401, "bad key", 3)] {
        let refusal = json!({"end": "last", "replies": [{"status": status, "message": words}]}).to_string();
        let rig = Rig::new(&refusal);
        let ran = rig.turn(&rig.input("go"));
        assert!(ran.outcome.finished && !ran.outcome.ok && ran.outcome.error.contains(words), "{}", ran.all);
        assert_eq!(rig.requests().len(), calls, "tries of a {status} are bounded");
    }
}

/// Modes of permission, the list of tools, effort, model, the minimal mode: each reaches the program.
#[test]
fn flags() {
    let Some(_) = image() else { return };
    let command = "python3 -c 'open(\"made.txt\", \"w\")'";
    let asks = |tools| {
        let rig = Rig::new(&script(&[command], "x"));
        let input = TurnInput { permission_mode: Some("dontAsk"), allowed_tools: tools, ..rig.input("go") };
        let ran = rig.turn(&input);
        assert!(ran.outcome.ok, "{}", ran.all);
        rig.made("made.txt")
    };
    assert!(!asks(None), "denied");
    assert!(asks(Some("Bash(python3:*)")), "allowed");
    let rig = Rig::new(&script(&[], "x"));
    let ran = rig.turn(&TurnInput { effort: Some("low"), model: Some("m-1"), bare: true, ..rig.input("go") });
    assert!(
        ran.outcome.ok && ran.trace.iter().any(|t| matches!(t, Trace::Warning(w) if w.contains("m-1"))),
        "{}",
        ran.all
    );
    let body: Value = serde_json::from_str(&rig.requests()[0].2).unwrap();
    assert_eq!((&body["model"], &body["output_config"]["effort"]), (&json!("m-1"), &json!("low")));
    let whole = Rig::new(&script(&[], "x"));
    whole.turn(&whole.input("go"));
    assert!(rig.requests()[0].2.len() < whole.requests()[0].2.len() / 2, "--bare is smaller");
}

/// Uid 0 in the box: the program refuses its permission mode there unless it is told that it is in a box.
#[test]
fn as_root() {
    let Some(_) = image() else { return };
    let rig = Rig::new(&script(&["id -u"], "it is done"));
    let ran = rig.turn(&TurnInput { root: true, ..rig.input("go") });
    assert!(ran.outcome.ok, "{}", ran.all);
    assert!(rig.requests()[1].2.contains("\"content\":\"0\""), "{}", rig.requests()[1].2);
}

/// On bwrap the box has the host's programs; one that is not there is exit 4, named, before anything exists.
#[test]
fn on_bwrap_without_the_program() {
    if std::path::Path::new("/usr/local/bin/claude").exists() {
        println!("skipped: this host has a claude of its own");
        return;
    }
    let rig = Rig::new(&script(&[], "x"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    command.args([
        "run",
        "x",
        "--runtime",
        "bwrap",
        "--agent",
        "claude",
        "--upstream",
        "http://127.0.0.1:9",
        "-w",
    ]);
    command
        .arg(&rig.work)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_STATE_HOME", rig.place.join("state"));
    let output = command.env("HOME", &rig.place).env("ANTHROPIC_API_KEY", "sk-ant-x").output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{err}");
    assert!(err.contains("/usr/local/bin/claude of agent claude") && err.contains("--agent mini"), "{err}");
}

/// What `run` makes of the flags that are claude's, by `--dry-run`: nothing is started.
#[test]
fn on_the_command_line() {
    let rig = Rig::new(&script(&[], "x"));
    let dry = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.args(["run", "x", "--runtime", "bwrap", "--dry-run", "-w"]).arg(&rig.work).args(args);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &rig.place)
            .env("ANTHROPIC_API_KEY", "sk-ant-x");
        let output = command.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&all).into_owned())
    };
    let (code, out) = dry(&["--agent", "claude"]);
    assert!(code == Some(0) && out.contains("\"--strict-mcp-config\""), "{out}");
    assert!(!out.contains("--model"), "it has a default of its own: {out}");
    let all = [
        "--effort",
        "max",
        "--permission-mode",
        "dontAsk",
        "--allowed-tools",
        "Read",
        "--bare",
        "--max-turns",
        "3",
    ];
    let (code, out) = dry(&[&["--agent", "claude", "--allow-model", "m-1"][..], &all].concat());
    assert_eq!(code, Some(0), "{out}");
    for argument in [
        "--effort=max",
        "--permission-mode=dontAsk",
        "--allowed-tools=Read",
        "--bare",
        "--max-turns=3",
        "--model=m-1",
    ] {
        assert!(out.contains(&format!("\"{argument}\"")), "{argument}: {out}");
    }
    for (args, words) in [
        (&["--agent", "claude", "--allow-model", "a", "--allow-model", "b"][..], "--model is required"),
        (&["--agent", "claude", "--allowed-tools", "Read"], "no tool asks"),
        (&["--agent", "claude", "--permission-mode", "auto"], "it may be acceptEdits"),
        (&["--agent", "claude", "--provider", "openai"], "no protocol in common"),
        (&["--agent", "mini", "--model", "m", "--bare"], "mini does not take --bare"),
        (&["--agent", "mini", "--model", "m", "--effort", "low"], "mini does not take --effort"),
    ] {
        let (code, out) = dry(args);
        assert!(code == Some(2) && out.contains(words), "{args:?}: {code:?} {out}");
    }
}
