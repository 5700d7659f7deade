//! The relay as the keeper starts it: order on standard input, descriptors handed over, notes back.

use crate::rig::{KEY, Provider, TOKEN, answer, get, post, status};
use sanduk::relay::caps::Caps;
use sanduk::relay::note::{Call, Note};
use sanduk::relay::start::{Fds, Grants, Order, Upstream};
use sanduk::sys::exec::{self, Child, Feed};
use sanduk::sys::net;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Role {
    child: Child,
    life: Option<std::fs::File>,
    notes: BufReader<std::fs::File>,
    pub address: SocketAddr,
}

fn role(provider: &Provider, log: &str, preflight: bool) -> Role {
    role_by(provider, log, preflight, env!("CARGO_BIN_EXE_sanduk"), &["relay-role"])
}

pub fn role_by(provider: &Provider, log: &str, preflight: bool, program: &str, args: &[&str]) -> Role {
    let listener = net::listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let on = On { listener, address, peer_uid: None, become_uid: None, bodies: None };
    role_on(on, provider, log, preflight, program, args)
}

/// With a directory of bodies.
pub fn role_with(bodies: &Path, provider: &Provider, program: &str, args: &[&str]) -> Role {
    let listener = net::listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let bodies = Some(std::fs::File::open(bodies).unwrap().into());
    let on = On { listener, address, peer_uid: None, become_uid: None, bodies };
    role_on(on, provider, &log_path(), false, program, args)
}

/// Where a role listens, whom it serves, who it becomes, where it keeps bodies.
struct On {
    listener: net::Listener,
    address: SocketAddr,
    peer_uid: Option<u32>,
    become_uid: Option<(u32, u32)>,
    bodies: Option<OwnedFd>,
}

fn role_on(on: On, provider: &Provider, log: &str, preflight: bool, program: &str, args: &[&str]) -> Role {
    let On { listener, address, peer_uid, become_uid, bodies } = on;
    let listener = OwnedFd::from(listener);
    let (secrets, secrets_in) = net::pipe().unwrap();
    let (notes, notes_in) = net::pipe().unwrap();
    let log: OwnedFd = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap().into();
    let order = Order {
        provider: "anthropic".into(),
        upstream: Upstream {
            tls: false,
            host: "127.0.0.1".into(),
            port: provider.address.port(),
            addresses: vec![provider.address],
            retry_for: Duration::from_secs(60),
            ..Upstream::default()
        },
        hosts: vec!["relay.test".into()],
        peer_uid,
        grants: Grants::default(),
        caps: Caps::default(),
        become_uid,
        fds: Fds {
            listener: listener.as_raw_fd(),
            secrets: secrets.as_raw_fd(),
            log: log.as_raw_fd(),
            notes: notes_in.as_raw_fd(),
            bodies: bodies.as_ref().map(AsRawFd::as_raw_fd),
        },
        preflight,
    };
    let mut child = exec::start(exec::Order {
        program: PathBuf::from(program),
        args: args.iter().map(Into::into).collect(),
        env: Vec::new(),
        stdin: Feed::Pipe,
        stdout: Feed::Null,
        stderr: Feed::Inherit,
        inherit: [listener, secrets, log, notes_in].into_iter().chain(bodies).collect(),
        user: None,
        cwd: PathBuf::from("/"),
        own_group: false,
    })
    .unwrap();
    let mut life = std::fs::File::from(child.stdin().unwrap());
    life.write_all(&serde_json::to_vec(&order).unwrap()).unwrap();
    life.write_all(b"\n").unwrap();
    std::fs::File::from(secrets_in).write_all(format!("{TOKEN}\n{KEY}").as_bytes()).unwrap();
    Role { child, life: Some(life), notes: BufReader::new(std::fs::File::from(notes)), address }
}

impl Role {
    pub fn note(&mut self) -> Note {
        let mut line = String::new();
        self.notes.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
    }

    pub fn ready(&mut self) {
        let note = self.note();
        assert!(matches!(note, Note::Ready(_)), "{note:?}");
    }

    pub fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        String::from_utf8_lossy(&got).into_owned()
    }

    fn code(&mut self) -> exec::Ended {
        self.child.wait(Duration::from_secs(20)).unwrap().unwrap()
    }
}

pub fn log_path() -> String {
    crate::rig::fresh_dir().join("calls.jsonl").display().to_string()
}

#[test]
fn serves_until_its_keeper_lets_go() {
    let provider = Provider::plain();
    let log = log_path();
    let mut role = role(&provider, &log, false);
    role.ready();
    assert_eq!(status(&role.ask(&get("/v1/models", ""))), "200");
    let Note::Call(Call { method, path, status: code, owed, .. }) = role.note() else { panic!("no call") };
    assert_eq!((method.as_str(), path.as_str(), code, owed), ("GET", "/v1/models", 200, false));
    assert_eq!(status(&role.ask(&get("/v1/files", ""))), "403");
    let Note::Denied(denied) = role.note() else { panic!("no refusal") };
    assert_eq!((denied.path.as_str(), denied.status), ("/v1/files", 403));
    // It is deaf to signals: its life is the pipe.
    let pid = i32::try_from(role.child.id()).unwrap();
    sanduk::sys::proc::signal(pid, 15).unwrap();
    assert_eq!(status(&role.ask(&get("/v1/models", ""))), "200");
    role.life = None;
    assert_eq!(role.code(), exec::Ended::Code(0));
    let text = std::fs::read_to_string(log).unwrap();
    assert!(text.lines().last().unwrap().contains("\"kind\":\"end\""), "{text}");
    assert!(!text.contains(KEY));
}

/// TRAPS 90: the preflight follows no redirect, and any status but 401 and 403 passes.
#[test]
fn trap_90_preflight_follows_nothing() {
    for code in ["200 OK", "302 Found", "404 Not Found", "500 Oops"] {
        let elsewhere = Provider::plain();
        let to = format!("Location: http://{}/\r\n", elsewhere.address);
        let provider = Provider::start(move |_, _| vec![answer(code, &to, "{}")]);
        let mut role = role(&provider, &log_path(), true);
        role.ready();
        let seen = provider.seen();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].head.starts_with("GET /v1/models HTTP/1.1\r\n"));
        assert!(
            seen[0].head.contains(&format!("x-api-key: {KEY}\r\n"))
                && seen[0].head.contains("anthropic-version: 2023-06-01")
        );
        assert!(elsewhere.seen().is_empty());
    }
}

#[test]
fn a_refused_key_is_told_before_anything_is_served() {
    for code in ["401 Unauthorized", "403 Forbidden"] {
        let provider = Provider::start(move |_, _| vec![answer(code, "", KEY)]);
        let mut role = role(&provider, &log_path(), true);
        let Note::Refused(stop) = role.note() else { panic!("not refused") };
        assert!(
            stop.why.contains("ANTHROPIC_API_KEY") && !stop.why.contains(KEY) && stop.exit == 2,
            "{stop:?}"
        );
        assert_eq!(role.code(), exec::Ended::Code(2));
    }
}

/// No record, no call: on a full device the relay does not even begin to serve.
#[test]
fn full_device_forwards_nothing() {
    let provider = Provider::plain();
    let mut role = role(&provider, "/dev/full", false);
    let Note::Refused(stop) = role.note() else { panic!("not refused") };
    assert!(stop.why.contains("record") && stop.exit == 2, "{stop:?}");
    assert_eq!(role.code(), exec::Ended::Code(2));
    assert!(provider.seen().is_empty());
}

/// The disk fills up while it serves (a file size limit stands in for it). Nothing is forwarded without its verdict; and an answer
/// whose outcome cannot be recorded is not completed. Both end the run.
#[test]
fn a_record_that_fails_later_ends_the_run() {
    for (model, at_verdict) in [("\\u0001".repeat(200), true), ("\\u0001".repeat(60), false)] {
        let provider = Provider::plain();
        // 1024 bytes: room for the first record and the second, or only for the first; the signal that goes with the limit is ignored, as
        // there is none on a full disk.
        let limited = r#"trap "" XFSZ; ulimit -f 2; exec "$0" relay-role"#;
        let args = ["-c", limited, env!("CARGO_BIN_EXE_sanduk")];
        let mut role = role_by(&provider, &log_path(), false, "/bin/sh", &args);
        role.ready();
        let got = role.ask(&post(
            "/v1/messages",
            "",
            &format!(r#"{{"model":"{model}","max_tokens":1,"messages":[]}}"#),
        ));
        let Note::End(stop) = role.note() else { panic!("not ended") };
        assert!(stop.exit == 3 && stop.why.contains("record"), "{stop:?}");
        assert_eq!(status(&got), if at_verdict { "503" } else { "-" }, "{got}");
        assert_eq!(provider.seen().len(), usize::from(!at_verdict));
        assert_eq!(status(&role.ask(&get("/v1/models", ""))), "403");
    }
}

#[test]
fn a_killed_keeper_takes_it_along() {
    let provider = Provider::plain();
    let mut role = role(&provider, &log_path(), false);
    role.ready();
    // Closing the pipe is all that a SIGKILL of the keeper does that reaches us for certain.
    role.life = None;
    assert_eq!(role.code(), exec::Ended::Code(0));
    assert!(TcpStream::connect(role.address).is_err());
}

/// BOX B39: only the box's uid is served on its socket; others get not even an answer.
#[test]
fn box_b39_foreign_uid_on_the_socket() {
    let me = sanduk::sys::proc::ids().0;
    for (uid, served) in [(me, true), (me + 12345, false)] {
        let provider = Provider::plain();
        let dir = crate::rig::fresh_dir();
        let listener = net::listen_unix(&dir, "relay.sock", 0o666).unwrap();
        let nowhere = "127.0.0.1:9".parse().unwrap();
        let on = On { listener, address: nowhere, peer_uid: Some(uid), become_uid: None, bodies: None };
        let mut role =
            role_on(on, &provider, &log_path(), false, env!("CARGO_BIN_EXE_sanduk"), &["relay-role"]);
        role.ready();
        let mut stream = std::os::unix::net::UnixStream::connect(dir.join("relay.sock")).unwrap();
        let _ = stream.write_all(get("/v1/models", "").as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut got = String::new();
        let _ = stream.read_to_string(&mut got);
        assert_eq!(got.starts_with("HTTP/1.1 200"), served, "{got}");
        assert_eq!(provider.seen().len(), usize::from(served));
    }
}

/// BOX B3: started by root, the relay has a uid of its own and no capability; the filter is on whoever starts it.
#[test]
fn box_b3_not_root_and_filtered() {
    let root = sanduk::sys::proc::ids().0 == 0;
    let provider = Provider::plain();
    let listener = net::listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let on =
        On { listener, address, peer_uid: None, become_uid: root.then_some((54321, 54321)), bodies: None };
    let mut role = role_on(on, &provider, &log_path(), false, env!("CARGO_BIN_EXE_sanduk"), &["relay-role"]);
    role.ready();
    assert_eq!(status(&role.ask(&get("/v1/models", ""))), "200");
    let text = std::fs::read_to_string(format!("/proc/{}/status", role.child.id())).unwrap();
    let value = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_string();
    if root {
        assert_eq!(value("Uid:"), "54321\t54321\t54321\t54321");
        assert_eq!(value("Gid:"), "54321\t54321\t54321\t54321");
        assert_eq!(value("Groups:"), "");
    }
    for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!((value("NoNewPrivs:").as_str(), value("Seccomp:").as_str()), ("1", "2"));
}
