//! What may not pass: the host's secrets in a request, the key in a compressed answer.

use crate::rig::{Act, KEY, Provider, Relay, answer, get, post, read_until, send, status};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const NAME: &str = "DEPLOY_TOKEN";
const VALUE: &str = "ghp/7Jc+Qm2Lr&7TnVb4Kd9Wf1Yp6Hs3Gj5Ce0=";

fn body(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":{text}}}]}}"#)
}

/// What a program of the host makes of the text.
fn through(program: &[&str], text: &str) -> String {
    let (name, args) = program.split_first().unwrap();
    let mut child =
        Command::new(name).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

/// BOX B26: a secret of the host ends the run in any form and any place; it is told by its name, never by its value.
#[test]
fn box_b26_a_secret_of_the_host_ends_the_run() {
    let env = format!("HOME=/root\nDEPLOY={VALUE}\nTERM=xterm\n");
    let url: String = VALUE
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02x}") })
        .collect();
    let wrapped = through(&["base64"], &env);
    assert!(wrapped.contains('\n') && !wrapped.contains(VALUE));
    let url_alphabet =
        through(&["base64", "-w0"], VALUE).replace('+', "-").replace('/', "_").replace('=', "");
    let arguments = body(&serde_json::to_string(&env).unwrap());
    let bad_path = get(&format!("/nowhere/{url}"), "");
    let requests = [
        post("/v1/messages", "", &body(&env)),
        post("/v1/messages", "", &body(&wrapped)),
        post("/v1/messages", "", &body(&format!("t={url_alphabet}"))),
        post("/v1/messages", "", &body(&format!("curl https://x.test/?t={url}"))),
        post("/v1/messages", "", &arguments),
        post("/v1/messages", "", &format!(r#"{{"model":"m","max_tokens":1,"messages":[],"{VALUE}":1}}"#)),
        post(&format!("/v1/messages?x={url}"), "", &body("")),
        post("/v1/messages", &format!("anthropic-beta: {VALUE}\r\n"), &body("")),
        // Before anything else is looked at, or written down.
        bad_path.clone(),
        bad_path.replace("RUNTOKEN", "another"),
        get("/v1/models", "").replace("relay.test", &url_alphabet),
        post("/v1/messages", &format!("x-unknown: {VALUE}\r\n"), "not JSON"),
    ];
    for request in requests {
        for mode in ["sealed", "key-safe"] {
            let provider = Provider::plain();
            let more = ["--log-dir", "log", "--mode", mode, "--secret-env", NAME];
            let mut relay = Relay::with_env(&provider, false, &more, &[(NAME, VALUE)]);
            let got = relay.ask(&request);
            assert_eq!(status(&got), "403", "{request}");
            assert!(!got.contains(NAME) && !got.contains("--"), "{got}");
            assert_eq!(relay.ended(), Some(3), "{request}");
            assert!(relay.line("ended: ").contains(&format!("the value of {NAME}")), "{:?}", relay.lines());
            assert!(provider.seen().is_empty());
            let log = std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap();
            let told = relay.lines().join("\n") + &log;
            for form in [VALUE, url.as_str(), &url_alphabet] {
                assert!(!told.contains(form), "{told}");
            }
            assert!(log.contains(&format!(r#""secrets":["{NAME}"]"#)), "{log}");
            let line = request.split(['?', '\r']).next().unwrap();
            let named = line.contains(&url) || line.contains(&url_alphabet);
            assert_eq!(told.contains("(kept back)"), named, "{told}");
        }
    }
}

/// The key in the same forms, with nothing else named.
#[test]
fn box_b26_the_key_in_other_forms() {
    let encoded = through(&["base64", "-w0"], &format!("x-api-key: {KEY}"));
    let url: String = KEY.bytes().map(|b| format!("%{b:02X}")).collect();
    let spelled = encoded.replace('a', "\\u0061").replace('c', "\\u0063");
    let quoted = |text: &str| body("@").replace('@', text);
    let innocent = through(&["base64", "-w0"], &KEY.replace("REAL", "FAKE"));
    for (text, held) in [(&encoded, true), (&url, true), (&spelled, true), (&innocent, false)] {
        let provider = Provider::plain();
        let mut relay = Relay::start(&provider, &[]);
        let got = relay.ask(&post("/v1/messages", "", &quoted(text)));
        assert_eq!(status(&got), if held { "403" } else { "200" }, "{text}");
        if held {
            assert_eq!(relay.ended(), Some(3));
            assert!(relay.line("ended: ").contains("the provider key"));
        }
    }
}

/// A secret that would be no secret is refused, before anything listens; a good one is in no environment any more.
#[test]
fn secrets_that_are_refused_and_taken() {
    let provider = Provider::plain();
    let relay = Relay::with_env(&provider, false, &["--secret-env", NAME], &[(NAME, VALUE)]);
    let environ = std::fs::read(format!("/proc/{}/environ", relay.pid())).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&environ).contains(VALUE));
    for (args, why) in [
        (vec!["relay", "--secret-env", "SHORT"], "15 bytes"),
        (vec!["relay", "--secret-env", "UNSET"], "it is not set"),
        (vec!["run", "--secret-env", NAME, "--mode", "open", "x"], "--secret-env with --mode open"),
        (vec!["run", "--canary", "--mode", "open", "x"], "--canary with --mode open"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.args(&args).env("SHORT", "0123456789abcde").env_remove("UNSET").env(NAME, VALUE);
        if args[0] == "relay" {
            command.args(["--listen", "tcp:127.0.0.1:0", "--token-file", "/dev/null"]);
        }
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && !said.contains("0123456789") && !said.contains(VALUE), "{said}");
    }
}

fn gzip(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut out = Vec::new();
    for piece in pieces {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
        out.push(std::mem::take(encoder.get_mut()));
    }
    out.push(encoder.finish().unwrap());
    out
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// What anybody can inflate of the answer, complete or not.
fn inflated(answer: &[u8]) -> Vec<u8> {
    let at = answer.windows(4).position(|w| w == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let (mut rest, mut payload) = (&answer[at..], Vec::new());
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let data = &rest[end + 2..];
        payload.extend_from_slice(&data[..size.min(data.len())]);
        rest = data.get(size + 2..).unwrap_or_default();
    }
    let mut out = Vec::new();
    let _ = flate2::read::MultiGzDecoder::new(payload.as_slice()).read_to_end(&mut out);
    out
}

/// An answer that holds the key inside gzip, whole or in any pieces, plain or as base64: it is cut before the box could read a byte of
/// the key, and the run ends.
#[test]
fn box_b11_a_key_inside_gzip_is_cut() {
    let before = "data: {\"x\":\"what comes before\"}\n\n".repeat(20);
    let base64 = through(&["base64", "-w0"], &format!("Basic user:{KEY}~~"));
    for text in [KEY, &base64] {
        // Flushed within the key, in one block, and stored; sent as one piece, byte by byte, and with a pause inside.
        let mut ways: Vec<(Vec<Vec<u8>>, bool)> = Vec::new();
        let whole = format!("{before}data: {text} and more\n\n");
        let at = before.len() + 6 + text.len() / 2;
        for cuts in [vec![whole.len()], vec![at, whole.len()], vec![before.len(), at, at + 1, whole.len()]] {
            let mut from = 0;
            let pieces: Vec<&[u8]> =
                cuts.iter().map(|to| &whole.as_bytes()[std::mem::replace(&mut from, *to)..*to]).collect();
            ways.push((gzip(&pieces), false));
            ways.push((gzip(&pieces).concat().chunks(1).map(<[u8]>::to_vec).collect(), true));
        }
        for (pieces, bytewise) in ways {
            let script: Vec<Act> = std::iter::once(send(CHUNKED))
                .chain(pieces.iter().flat_map(|p| [Act::Send(chunk(p)), Act::Wait]))
                .collect();
            let count = pieces.len();
            let provider = Provider::start(move |_, _| script.clone());
            let mut relay = Relay::start(&provider, &["--log-dir", "log"]);
            let mut stream = relay.connect();
            stream.write_all(get("/v1/models", "Accept-Encoding: gzip\r\n").as_bytes()).unwrap();
            for _ in 0..count {
                // Lets each piece come on its own, most of the time.
                std::thread::sleep(std::time::Duration::from_millis(if bytewise { 1 } else { 20 }));
                provider.go();
            }
            let mut got = Vec::new();
            let _ = stream.read_to_end(&mut got);
            let read = String::from_utf8_lossy(&inflated(&got)).into_owned();
            assert!(before.starts_with(&read) || read.starts_with(&before), "{read}");
            let behind = read.strip_prefix(&before).unwrap_or_default();
            // Of `Basic user:` the first letters are no part of the key.
            let innocent = &text[..if text == KEY { 0 } else { 15 }];
            assert!(format!("data: {innocent}").starts_with(behind), "{behind:?}");
            assert!(!got.ends_with(b"0\r\n\r\n"));
            assert_eq!(relay.ended(), Some(3), "{read}");
            assert!(relay.line("ended: ").contains("sent the key back"));
            assert!(relay.records().iter().any(|r| r["ended"] == "key-reflected"));
        }
    }
}

/// U31 and U33: gzip passes byte for byte, in many members, cut off, with a wrong checksum or something behind it, event by event.
#[test]
fn u31_u33_gzip_passes_as_it_came() {
    let event = b"data: {\"type\":\"ping\"}\n\n";
    let one = gzip(&[event]).concat();
    let mut wrong = one.clone();
    let at = wrong.len() - 6;
    wrong[at] ^= 0xFF;
    let named =
        [&[0x1f, 0x8b, 8, 0x1E, 0, 0, 0, 0, 0, 3, 2, 0, b'x', b'y'][..], b"n\0", b"c\0", b"hh", &one[10..]]
            .concat();
    for bytes in [
        one.clone(),
        [one.clone(), one.clone()].concat(),
        one[..one.len() - 3].to_vec(),
        wrong,
        [one.clone(), vec![0; 40]].concat(),
        b"no gzip at all".to_vec(),
        named,
    ] {
        let sent = bytes.clone();
        let provider =
            Provider::start(move |_, _| vec![send(CHUNKED), Act::Send(chunk(&sent)), send("0\r\n\r\n")]);
        let relay = Relay::start(&provider, &["--mode", "sealed"]);
        let (got, reset) = relay.talk(post("/v1/messages", "", &body("")).as_bytes());
        assert!(!reset && got.ends_with(&[&chunk(&bytes)[..], b"0\r\n\r\n"].concat()), "{got:?}");
    }
    let pieces = gzip(&[event, event]);
    let script = [
        send(CHUNKED),
        Act::Send(chunk(&pieces[0])),
        Act::Wait,
        Act::Send(chunk(&pieces[1])),
        send("0\r\n\r\n"),
    ];
    let provider = Provider::start(move |_, _| script.to_vec());
    let relay = Relay::start(&provider, &[]);
    let mut stream = relay.connect();
    stream.write_all(post("/v1/messages", "", &body("")).as_bytes()).unwrap();
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    // The first event is here before the second is sent.
    while inflated(&got) != event {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0);
        got.extend_from_slice(&piece[..n]);
    }
    provider.go();
    read_until(&mut stream, &mut got, "0\r\n\r\n");
}

/// U32: a bomb passes, searched to its end, counted to its bound; what a person would see as a key behind 300 MB is found.
#[test]
fn u32_a_bomb_is_searched_to_its_end() {
    let zeros = vec![b' '; 1 << 20];
    let mut pieces: Vec<&[u8]> = vec![&zeros; 100];
    for held in [false, true] {
        if held {
            pieces.push(KEY.as_bytes());
        }
        let bomb = gzip(&pieces).concat();
        let sent = bomb.clone();
        let provider =
            Provider::start(move |_, _| vec![send(CHUNKED), Act::Send(chunk(&sent)), send("0\r\n\r\n")]);
        let mut relay = Relay::start(&provider, &["--log-dir", "log"]);
        let (got, _) = relay.talk(post("/v1/messages", "", &body("")).as_bytes());
        assert_eq!(got.ends_with(b"\r\n0\r\n\r\n"), !held);
        if held {
            assert_eq!(relay.ended(), Some(3));
        } else {
            let outcome = relay.records().into_iter().find(|r| r["kind"] == "outcome").unwrap();
            assert!(outcome["ended"] == "whole" && outcome["owed"] == true && outcome.get("input").is_none());
        }
    }
}

/// U34: a coding that nobody asked for cannot be searched: sealed mode does not hand it on, the others do and count it as owed.
#[test]
fn u34_codings_that_nobody_asked_for() {
    for coding in ["br", "zstd", "deflate", "gzip, gzip", "br, gzip"] {
        for (mode, want, ended) in [("sealed", "502", "unreadable"), ("key-safe", "200", "whole")] {
            let fields = format!("Content-Encoding: {coding}\r\n");
            let provider = Provider::start(move |_, _| vec![answer("200 OK", &fields, "\u{1}\u{2}opaque")]);
            let mut relay = Relay::start(&provider, &["--log-dir", "log", "--mode", mode]);
            let got = relay.ask(&post("/v1/messages", "", &body("")));
            assert_eq!(status(&got), want, "{coding}: {got}");
            assert_eq!(got.contains("opaque"), want == "200");
            let outcome = relay.records().into_iter().find(|r| r["kind"] == "outcome").unwrap();
            assert_eq!((&outcome["ended"], &outcome["owed"]), (&ended.into(), &true.into()));
            relay.signal(15);
            assert_eq!(relay.ended(), Some(143));
        }
    }
}

/// The name of a model is decoded before it is written down: the key spelled in it is in no record.
#[test]
fn a_key_spelled_in_an_answer_is_in_no_record() {
    let spelled: String = KEY.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let text =
        format!(r#"{{"type":"message","model":"{spelled}","usage":{{"input_tokens":1,"output_tokens":1}}}}"#);
    let provider =
        Provider::start(move |_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", &text)]);
    let relay = Relay::start(&provider, &["--log-dir", "log"]);
    relay.ask(&post("/v1/messages", "", &body("")));
    relay.line("in=1");
    let log = std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap();
    assert!(!log.contains(KEY) && log.contains("\"input\":1"), "{log}");
}
