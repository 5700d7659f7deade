//! Those who read what the relay says, and do not.

use crate::rig::{KEY, PATIENCE, Provider, TOKEN, fresh_dir, get, read_until};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A standard error that nobody reads any more (a paused pager, a pipe to a stopped process): calls go on, and a signal ends the relay.
#[test]
fn a_stalled_standard_error_holds_no_call_and_no_end_up() {
    let (provider, dir) = (Provider::plain(), fresh_dir());
    std::fs::write(dir.join("token"), TOKEN).unwrap();
    std::fs::write(dir.join("key"), KEY).unwrap();
    let upstream = format!("http://{}", provider.address);
    let mut relay = Command::new(env!("CARGO_BIN_EXE_sanduk"))
        .args(["relay", "--listen", "tcp:127.0.0.1:0", "--token-file", "token", "--key-file", "key"])
        .args([
            "--host",
            "relay.test",
            "--provider",
            "anthropic",
            "--mode",
            "key-safe",
            "--upstream",
            &upstream,
        ])
        .env_clear()
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = relay.stderr.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&errors, 4096).unwrap();
    let (mut errors, mut line) = (BufReader::with_capacity(64, errors), String::new());
    while !line.contains("serving ") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0);
    }
    let at = line.split("tcp:").nth(1).unwrap().split(';').next().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Each call is a line of some 40 bytes; the pipe holds a page.
    for _ in 0..200 {
        stream.write_all(get("/v1/models", "").as_bytes()).unwrap();
        read_until(&mut stream, &mut Vec::new(), "\r\n\r\n{}");
    }
    sanduk::sys::proc::signal(i32::try_from(relay.id()).unwrap(), 15).unwrap();
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match relay.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > until => break relay.kill().and_then(|()| relay.wait()).unwrap(),
            None => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(143), "it did not end by the signal");
    let _ = std::fs::remove_dir_all(&dir);
}
