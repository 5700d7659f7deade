//! `--upstream-proxy`: a real CONNECT proxy between relay and provider, that tunnels, refuses, or says nothing.

use crate::connect::proxy;
use crate::rig::{KEY, Provider, Relay, get, status};
use crate::secure::{Server, children, ended, pem};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;

/// The provider by a name that only the proxy can reach.
fn relay(server: &Server, proxy: SocketAddr, auth: Option<&str>) -> Relay {
    let (upstream, proxy) = (format!("https://api.test:{}", server.port()), format!("http://{proxy}"));
    let ca = pem("ca.pem");
    let mut more =
        vec!["--upstream", &upstream, "--ca-file", &ca, "--upstream-proxy", &proxy, "--log-dir", "log"];
    more.extend(auth.iter().flat_map(|file| ["--upstream-proxy-auth", file]));
    Relay::start(&Provider::plain(), &more)
}

fn credentials(text: &str) -> String {
    let file = crate::rig::fresh_dir().join("auth");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file.display().to_string()
}

/// The proxy gets the name and the credentials, the provider the key, and neither password nor key is where others can read.
#[test]
fn a_tunnel_with_credentials() {
    let mut server = Server::start("serve", "good");
    let (address, asked) = proxy(|_| Some("200 Connection established"), server.port());
    let relay = relay(&server, address, Some(&credentials("joe:s3cret:word\n")));
    let got = relay.ask(&get("/v1/models", ""));
    assert_eq!(status(&got), "200", "{got}");
    assert_eq!(server.word("request"), "1");
    let head = asked.lock().unwrap()[0].clone();
    assert!(head.starts_with(&format!("CONNECT api.test:{} HTTP/1.", server.port())), "{head}");
    // joe:s3cret:word
    assert!(
        head.contains("Proxy-Authorization: Basic am9lOnMzY3JldDp3b3Jk\r\n") && !head.contains(KEY),
        "{head}"
    );
    let child = children(relay.pid())[0];
    let of = |pid: u32, name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', "\n")
    };
    assert_eq!(of(child, "environ"), "SANDUK_PROXY_PASSWORD=s3cret:word\n");
    let lines = relay.lines().join("\n");
    let log = std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap();
    for text in [of(child, "cmdline"), of(relay.pid(), "cmdline"), of(relay.pid(), "environ"), lines, log] {
        assert!(!text.contains("s3cret") && !text.contains("am9lOnMz"), "{text}");
    }
}

/// The provider's certificate is checked through the tunnel: a proxy cannot stand in for it.
#[test]
fn a_proxy_that_is_somebody_else() {
    let mut server = Server::start("serve", "wrong");
    let (address, _) = proxy(|_| Some("200 OK"), server.port());
    let relay = relay(&server, address, None);
    assert_eq!(status(&relay.ask(&get("/v1/models", ""))), "502");
    assert_eq!(server.word("closed"), "0");
}

#[test]
fn a_proxy_that_refuses() {
    let server = Server::start("serve", "good");
    for (answer, why) in [
        ("407 Proxy Authentication Required", "the proxy wants credentials"),
        ("403 Forbidden", "the proxy opens no tunnel: 403 Forbidden"),
    ] {
        let (address, asked) = proxy(move |_| Some(answer), server.port());
        let relay = relay(&server, address, None);
        let got = relay.ask(&get("/v1/models", ""));
        assert!(status(&got) == "502" && !got.contains("--"), "{got}");
        // The operator reads it on a line of its own.
        assert!(relay.line("GET /v1/models -> 502").contains(why));
        assert_eq!((ended(&relay).as_str(), asked.lock().unwrap().len()), ("unreachable", 1));
        assert!(!asked.lock().unwrap()[0].contains("Authorization"));
    }
}

/// A proxy that takes the request and says nothing, and one that is not there.
#[test]
fn a_proxy_that_hangs() {
    let server = Server::start("serve", "good");
    let (address, asked) = proxy(|_| None, server.port());
    let hung = relay(&server, address, None);
    let got = hung.ask(&get("/v1/models", ""));
    assert!(status(&got) == "504" && asked.lock().unwrap().len() == 1, "{got}");
    assert!(children(hung.pid()).is_empty());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(status(&relay(&server, nobody, None).ask(&get("/v1/models", ""))), "502");
}

#[test]
fn what_is_refused_beforehand() {
    let proxy = ["--upstream-proxy", "http://127.0.0.1:3128"];
    let auth = |text: &str| ["--upstream-proxy-auth".to_string(), credentials(text)];
    let cases: Vec<(Vec<String>, &str)> = vec![
        (
            [&proxy[..], &["--upstream", "http://127.0.0.1:1"]]
                .concat()
                .iter()
                .map(ToString::to_string)
                .collect(),
            "https",
        ),
        (
            [&proxy[..], &["--upstream", "https://[2001:db8::1]"]]
                .concat()
                .iter()
                .map(ToString::to_string)
                .collect(),
            "IPv6",
        ),
        (vec!["--upstream-proxy".into(), "http://joe:s3cret@127.0.0.1:3128".into()], "--upstream-proxy-auth"),
        (vec!["--upstream-proxy".into(), "https://127.0.0.1:3128".into()], "http://"),
        (auth("joe:s3cret").to_vec(), "no --upstream-proxy"),
        ([&proxy.map(String::from)[..], &auth("s3cret")].concat(), "user:password"),
        ([&proxy.map(String::from)[..], &auth("joe:s3c ret")].concat(), "user:password"),
        ([&proxy.map(String::from)[..], &auth("joe:")].concat(), "user:password"),
        ([&proxy.map(String::from)[..], &auth("joe:s3cret\nX: y")].concat(), "user:password"),
        ([&proxy.map(String::from)[..], &auth(&"s3cret:".repeat(1000))].concat(), "credentials from"),
    ];
    for (more, why) in cases {
        let token = credentials("T");
        let mut given = std::process::Command::new(env!("CARGO_BIN_EXE_sanduk"));
        given
            .args(["relay", "--listen", "tcp:127.0.0.1:0", "--token-file", &token, "--key-file", &token])
            .args(&more);
        let out = given.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{more:?}: {said}");
        assert!(said.contains(why) && !said.contains("s3cret"), "{more:?}: {said}");
    }
}
