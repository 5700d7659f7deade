//! `--tls stunnel:unix:PATH` with a real stunnel that runs what `sanduk stunnel-conf` prints.

use crate::rig::{KEY, Provider, Relay, fresh_dir, get, post, skipped, status};
use crate::secure::{Server, ended, pem};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A stunnel between a Unix socket and a server; killed when dropped.
struct Stunnel {
    child: Child,
    socket: PathBuf,
}

impl Drop for Stunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn printed(server: &Server, socket: &Path) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_sanduk"))
        .args(["stunnel-conf", "anthropic", "--listen", &format!("unix:{}", socket.display())])
        .args(["--upstream", &format!("https://localhost:{}", server.port()), "--ca-file", &pem("ca.pem")])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A short path: a Unix socket's has at most 107 bytes.
fn private_dir() -> PathBuf {
    let dir = fresh_dir().join("p");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    dir.canonicalize().unwrap()
}

/// Starts one as printed; `None`, and said, where there is no stunnel on this machine.
fn stunnel(server: &Server) -> Option<Stunnel> {
    let program = ["/usr/bin/stunnel", "/usr/bin/stunnel4"].into_iter().find(|p| Path::new(p).exists());
    let Some(program) = program else {
        skipped("no stunnel");
        return None;
    };
    let dir = private_dir();
    let (socket, file) = (dir.join("up.sock"), dir.join("conf"));
    std::fs::write(&file, printed(server, &socket)).unwrap();
    let child = Command::new(program).arg(&file).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let started = Stunnel { child, socket };
    let until = Instant::now() + crate::rig::PATIENCE;
    while !started.socket.exists() {
        assert!(
            Instant::now() < until,
            "stunnel does not start: {}",
            std::fs::read_to_string(&file).unwrap()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(started)
}

fn relay(server: &Server, socket: &Path) -> Relay {
    let (upstream, how) =
        (format!("https://localhost:{}", server.port()), format!("stunnel:unix:{}", socket.display()));
    Relay::start(&Provider::plain(), &["--upstream", &upstream, "--tls", &how, "--log-dir", "log"])
}

#[test]
fn calls_go_through_and_connections_are_kept() {
    let mut server = Server::start("serve", "good");
    let Some(stunnel) = stunnel(&server) else { return };
    let relay = relay(&server, &stunnel.socket);
    let body = r#"{"model":"m","max_tokens":1,"messages":[]}"#;
    for request in [get("/v1/models", ""), get("/v1/models", ""), post("/v1/messages", "", body)] {
        let got = relay.ask(&request);
        assert!(status(&got) == "200" && got.ends_with("{}"), "{got}");
        assert_eq!(server.word("request"), "1");
    }
    // What holds is said: no TCP, no program, no file; and no openssl was started.
    let serving = relay.line("serving ");
    assert!(serving.contains("only Unix streams"), "{serving}");
    assert!(crate::secure::children(relay.pid()).is_empty());
}

/// U41 by stunnel: the printed configuration refuses each wrong certificate before a byte. Why stands in stunnel's own log.
#[test]
fn u41_the_printed_configuration_refuses() {
    for certificate in ["wrong", "expired", "future", "unknown", "selfsigned", "clientonly"] {
        let mut server = Server::start("serve", certificate);
        let Some(stunnel) = stunnel(&server) else { return };
        let relay = relay(&server, &stunnel.socket);
        let got = relay.ask(&get("/v1/models", ""));
        assert!(status(&got) == "502" && !got.contains(KEY), "{certificate}: {got}");
        assert_eq!(server.word("closed"), "0", "{certificate}: application bytes");
    }
}

/// U10, U11: stunnel ends its side in the same way for a clean end and for a cut, so such a body is never whole.
#[test]
fn u10_u11_a_close_delimited_body_is_never_whole() {
    for mode in ["clean", "cut"] {
        let server = Server::start(mode, "good");
        let Some(stunnel) = stunnel(&server) else { return };
        let relay = relay(&server, &stunnel.socket);
        let got = relay.ask(&get("/v1/models", ""));
        assert!(!got.contains("0\r\n\r\n"), "{mode}: {got}");
        assert_eq!(ended(&relay), "cut", "{mode}");
    }
}

/// U42 by stunnel: its own limit ends the handshake, and we see a connection that was closed without an answer.
#[test]
fn u42_a_handshake_that_stalls() {
    let server = Server::start("stall", "good");
    let Some(stunnel) = stunnel(&server) else { return };
    let relay = relay(&server, &stunnel.socket);
    let got = relay.ask(&get("/v1/models", ""));
    assert_eq!(status(&got), "502", "{got}");
    assert_eq!(ended(&relay), "broken");
}

fn refusal(how: &str, more: &[&str]) -> String {
    let file = private_dir().join("t");
    std::fs::write(&file, "T").unwrap();
    let file = file.display().to_string();
    let mut given = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    given.args(["relay", "--listen", "tcp:127.0.0.1:0", "--token-file", &file, "--key-file", &file]);
    // One that is not refused would serve for ever.
    let mut limited = Command::new("timeout");
    limited.arg("20").arg(given.get_program()).args(given.get_args()).args(["--tls", how]).args(more);
    let out = limited.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{how}: {said}");
    said
}

/// Whoever listens there gets the key: a socket must be root's or ours, where nobody else can put another.
#[test]
fn places_that_are_refused() {
    let dir = private_dir();
    let socket = dir.join("s");
    let _held = UnixListener::bind(&socket).unwrap();
    let how = format!("stunnel:unix:{}", socket.display());
    for mode in [0o770, 0o702, 0o777, 0o1777] {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refusal(&how, &[]).contains("socket of their own"), "{mode:o}");
    }
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    let below = dir.join("open");
    std::fs::create_dir_all(below.join("closed")).unwrap();
    std::fs::set_permissions(&below, PermissionsExt::from_mode(0o777)).unwrap();
    let _other = UnixListener::bind(below.join("closed/s")).unwrap();
    assert!(
        refusal(&format!("stunnel:unix:{}", below.join("closed/s").display()), &[])
            .contains("socket of their own")
    );
    std::fs::write(dir.join("file"), "").unwrap();
    assert!(refusal(&format!("stunnel:unix:{}/file", dir.display()), &[]).contains("no socket"));
    std::os::unix::fs::symlink(&socket, dir.join("link")).unwrap();
    assert!(refusal(&format!("stunnel:unix:{}/link", dir.display()), &[]).contains("no socket"));
    assert!(refusal(&format!("stunnel:unix:{}/none", dir.display()), &[]).contains("stunnel-conf"));
    assert!(refusal("stunnel:unix:s", &[]).contains("absolute"));
    assert!(refusal("stunnel:tcp:127.0.0.1:1", &[]).contains("stunnel:unix:PATH"));
    assert!(refusal("gnutls", &[]).contains("openssl"));
    let ca = pem("ca.pem");
    for more in [
        ["--ca-file", ca.as_str()],
        ["--upstream-proxy", "http://127.0.0.1:1"],
        ["--upstream", "http://127.0.0.1:1"],
    ] {
        assert!(refusal(&how, &more).contains("take --"), "{more:?}");
    }
    if sanduk::sys::proc::ids().0 == 0 {
        std::os::unix::fs::chown(&socket, Some(12345), None).unwrap();
        assert!(refusal(&how, &[]).contains("uid 12345"));
    }
}

/// A listener of somebody else that takes the place later gets nothing: its uid is asked for on each connection. Needs root.
#[test]
fn a_listener_of_somebody_else_gets_no_byte() {
    if sanduk::sys::proc::ids().0 != 0 {
        return skipped("only root can start a listener of another uid");
    }
    let server = Server::start("serve", "good");
    let dir = private_dir();
    let socket = dir.join("s");
    let held = UnixListener::bind(&socket).unwrap();
    let relay = relay(&server, &socket);
    drop(held);
    let listen = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX); os.unlink(sys.argv[1]); s.bind(sys.argv[1])\nos.setuid(12345); s.listen()\nprint('up',flush=True)\nc,_=s.accept(); print(len(c.recv(99)),flush=True)\n";
    let mut child =
        Command::new("python3").args(["-c", listen]).arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let got = relay.ask(&get("/v1/models", ""));
    assert_eq!(status(&got), "502", "{got}");
    assert!(relay.line("GET /v1/models -> 502").contains("uid 12345 listens there"));
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    child.wait().unwrap();
    assert_eq!(line, "up\n0\n");
}

#[test]
fn what_is_printed() {
    let print = |more: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_sanduk")).arg("stunnel-conf").args(more).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (code, text) = print(&["openai"]);
    assert_eq!(code, Some(0));
    for line in [
        "client = yes",
        "connect = api.openai.com:443",
        "sni = api.openai.com",
        "checkHost = api.openai.com",
        "verifyChain = yes",
        "CApath = /etc/ssl/certs",
        "sslVersionMin = TLSv1.2",
        "TIMEOUTconnect = 10",
        "TIMEOUTclose = 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    let (_, text) = print(&["openai", "--upstream", "https://[2001:db8::1]:8443"]);
    assert!(
        text.contains("\ncheckIP = 2001:db8::1\n") && text.contains("connect = [2001:db8::1]:8443"),
        "{text}"
    );
    assert!(!text.contains("sni"), "{text}");
    for bad in [
        &[][..],
        &["nobody"],
        &["openai-compat", "--upstream", "http://127.0.0.1:1"],
        &["openai", "--listen", "unix:rel"],
        &["openai", "--listen", "tcp:127.0.0.1:1"],
        &["openai", "--listen", "unix:/a\nconnect = evil:443"],
        &["openai", "--ca-file", "rel.pem"],
    ] {
        assert_eq!(print(bad).0, Some(2), "{bad:?}");
    }
}
