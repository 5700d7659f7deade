//! The built-in agent against the scripted provider, without a box: loop, tools, endings, both protocols, hostile answers.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "support/provider.rs"]
mod provider;

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A temporary project, removed when dropped.
struct Project(PathBuf);

impl Project {
    fn new() -> Project {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sanduk-mini-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Project(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a run of mini left.
struct Ran {
    code: Option<i32>,
    lines: Vec<Value>,
    stderr: String,
    requests: Vec<Value>,
}

impl Ran {
    fn result(&self) -> &Value {
        let last = self.lines.last().expect("a last line");
        assert_eq!(last["type"], "result", "{:?}", self.lines);
        last
    }

    fn of(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|l| l["type"] == kind).collect()
    }

    /// Body of the n-th request.
    fn body(&self, n: usize) -> Value {
        serde_json::from_str(self.requests[n]["body"].as_str().unwrap()).unwrap()
    }

    /// Not done, not exit 0, and `ok` is false: this ending and these words.
    #[track_caller]
    fn ended(&self, ending: &str, words: &str) {
        let result = self.result();
        assert_eq!((&result["ok"], &result["ending"]), (&json!(false), &json!(ending)), "{result}");
        assert!(result["error"].as_str().unwrap().contains(words), "{result}");
        assert_eq!(self.code, Some(1));
    }
}

fn command(project: &Path, protocol: &str, base: &str, more: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    command.arg("mini").current_dir(project).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", project);
    command.env("SANDUK_MINI_PROTOCOL", protocol).env("SANDUK_MINI_BASE_URL", base);
    command.env("SANDUK_MINI_TOKEN", "run-token").env("SANDUK_MINI_MODEL", "scripted-1");
    command.envs(more.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command, task: &[u8], requests: &Mutex<Vec<Value>>) -> Ran {
    let mut child = command.spawn().unwrap();
    // It may end without having read all.
    let _ = child.stdin.take().unwrap().write_all(task);
    let out = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(out.stdout).unwrap();
    Ran {
        code: out.status.code(),
        lines: stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect(),
        stderr: String::from_utf8(out.stderr).unwrap(),
        requests: requests.lock().unwrap().clone(),
    }
}

fn run_with(protocol: &str, script: &Value, project: &Project, more: &[(&str, &str)]) -> Ran {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    let record = Box::new(move |line: &str| kept.lock().unwrap().push(serde_json::from_str(line).unwrap()));
    let address = provider::start("127.0.0.1:0", &script.to_string(), record).unwrap();
    let prefix = if protocol == "chat" { "/v1" } else { "" };
    let command = command(&project.0, protocol, &format!("http://{address}{prefix}"), more);
    finish(command, b"do the work", &requests)
}

fn run(protocol: &str, script: &Value) -> Ran {
    run_with(protocol, script, &Project::new(), &[])
}

const BOTH: [&str; 2] = ["messages", "chat"];

fn tool(name: &str, input: Value) -> Value {
    json!({"tools": [{"name": name, "input": input}]})
}

#[test]
fn does_a_small_job_in_both_protocols() {
    for protocol in BOTH {
        let project = Project::new();
        std::fs::write(project.0.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        let script = json!({"replies": [
            {"text": "I look first.", "tools": [{"name": "bash", "input": {"command": "ls; echo err >&2"}},
                {"name": "read", "input": {"path": "a.txt", "from": 2, "lines": 1}}],
             "usage": {"input": 100, "output": 10, "cache_read": 40}},
            tool("edit", json!({"path": "a.txt", "old": "two", "new": "2"})),
            tool("write", json!({"path": "out/REPORT.md", "content": "# done\n"})),
            {"text": "All done.", "usage": {"input": 7, "output": 3}, "cost": 0.25}]});
        let ran = run_with(protocol, &script, &project, &[]);
        assert_eq!(ran.code, Some(0), "{:?} {}", ran.lines, ran.stderr);
        assert_eq!(project.read("a.txt"), "one\n2\nthree\n");
        assert_eq!(project.read("out/REPORT.md"), "# done\n");
        let result = ran.result();
        assert_eq!(
            (&result["ok"], &result["ending"], &result["turns"]),
            (&json!(true), &json!("done"), &json!(4))
        );
        assert_eq!(result["text"], "All done.");
        assert_eq!(result["session"], ran.lines[0]["session"]);
        let tools: Vec<_> = ran.of("tool").iter().map(|t| (t["name"].clone(), t["arg"].clone())).collect();
        assert_eq!(tools[0], (json!("bash"), json!("ls; echo err >&2")));
        assert_eq!(tools[3], (json!("write"), json!("out/REPORT.md")));
        assert_eq!((&ran.of("usage")[0]["input"], &ran.of("usage")[0]["output"]), (&json!(140), &json!(10)));
        // The tool results went back, each under its id.
        let last = ran.body(1)["messages"].clone();
        assert!(
            last.to_string().contains("a.txt\\nerr\\n") && last.to_string().contains("\"two\""),
            "{last}"
        );
        for request in &ran.requests {
            assert_eq!(request["method"], "POST");
            let header = |name: &str| {
                let headers = request["headers"].as_array().unwrap();
                headers.iter().find(|h| h[0] == name).map(|h| h[1].as_str().unwrap().to_string())
            };
            assert_eq!(header("accept-encoding").as_deref(), Some("identity"));
            match protocol {
                "messages" => assert_eq!(header("x-api-key").as_deref(), Some("run-token")),
                _ => assert_eq!(header("authorization").as_deref(), Some("Bearer run-token")),
            }
        }
    }
}

/// Only fields that the sealed relay lets through (Messages: model, max_tokens, stream, tools, messages, system; Chat Completions:
/// model, stream, stream_options, tools, messages), and nothing else inside tools and messages.
#[test]
fn sends_only_fields_that_sealed_mode_allows() {
    fn names(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }
    let script = json!({"replies": [tool("bash", json!({"command": "true"})), {"text": "done"}]});
    let ran = run("messages", &script);
    let body = ran.body(1);
    assert_eq!(names(&body), ["max_tokens", "messages", "model", "stream", "system", "tools"]);
    assert_eq!(names(&body["tools"][0]), ["description", "input_schema", "name"]);
    assert_eq!(names(&body["messages"][1]["content"][0]), ["id", "input", "name", "type"]);
    let result = &body["messages"][2]["content"][0];
    assert_eq!(names(result), ["cache_control", "content", "is_error", "tool_use_id", "type"]);
    assert_eq!(result["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(body.to_string().matches("cache_control").count(), 2);
    let body = run("chat", &script).body(1);
    assert_eq!(names(&body), ["messages", "model", "stream", "stream_options", "tools"]);
    assert_eq!(names(&body["tools"][0]), ["function", "type"]);
    assert_eq!(names(&body["messages"][2]["tool_calls"][0]), ["function", "id", "type"]);
    assert_eq!(names(&body["messages"][3]), ["content", "role", "tool_call_id"]);
}

#[test]
fn stops_at_the_turn_limit_and_says_so() {
    for protocol in BOTH {
        let script = serde_json::from_str(provider::named("loop").unwrap()).unwrap();
        let ran = run_with(protocol, &script, &Project::new(), &[("SANDUK_MINI_MAX_TURNS", "3")]);
        ran.ended("max_turns", "3 model calls");
        assert_eq!(ran.requests.len(), 3);
    }
}

#[test]
fn a_refused_call_is_final_and_shows_the_reason() {
    for (protocol, status) in
        [("messages", 401), ("chat", 402), ("messages", 403), ("chat", 413), ("messages", 400)]
    {
        let ran = run(protocol, &json!({"replies": [{"status": status, "message": "budget FAKE spent"}]}));
        ran.ended("refused", "budget FAKE spent");
        assert!(ran.result()["error"].as_str().unwrap().contains(&status.to_string()));
        assert_eq!(ran.requests.len(), 1, "{status} was asked again");
    }
}

#[test]
fn an_overloaded_provider_is_asked_again() {
    for status in [429, 500, 503, 529] {
        let ran = run(
            "messages",
            &json!({"replies": [
            {"status": status, "headers": [["retry-after", "0"]], "times": 2}, {"text": "at last"}]}),
        );
        assert_eq!((ran.code, ran.requests.len()), (Some(0), 3), "{:?}", ran.lines);
        assert_eq!(ran.of("retry").len(), 2);
    }
    // A wait beyond our patience, and a relay that says it is final: no second call.
    for (header, ending) in
        [(json!(["retry-after", "7200"]), "error"), (json!(["x-should-retry", "false"]), "refused")]
    {
        let ran =
            run("chat", &json!({"replies": [{"status": 429, "headers": [header], "message": "slow down"}]}));
        ran.ended(ending, "slow down");
        assert_eq!(ran.requests.len(), 1);
    }
    let ran = run(
        "messages",
        &json!({"end": "last", "replies": [{"status": 529, "headers": [["retry-after", "0"]]}]}),
    );
    ran.ended("error", "gave up");
    assert_eq!(ran.requests.len(), 5);
}

/// However an answer is cut, it is asked for once more and then given up; what came of it is never acted on.
#[test]
fn a_cut_stream_is_asked_again_once_and_never_acted_on() {
    let mut cuts = vec![];
    for framing in ["chunked", "length", "close"] {
        cuts.push(json!({"framing": framing, "cut_events": 3}));
        cuts.push(json!({"framing": framing, "cut": 700}));
    }
    cuts.push(json!({"cut": 0}));
    // All events came, but the body has no end.
    cuts.push(json!({"cut_events": 99}));
    cuts.push(json!({"raw": "HTTP/1.1 200 OK\r\ncontent-type: text/event-str"}));
    // The framing is whole but the protocol's own end is missing.
    cuts.push(
        json!({"raw": "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n"}),
    );
    for protocol in BOTH {
        for cut in &cuts {
            let mut reply = tool("bash", json!({"command": "touch acted"}));
            reply.as_object_mut().unwrap().extend(cut.as_object().unwrap().clone());
            reply["times"] = json!(2);
            let project = Project::new();
            let ran = run_with(protocol, &json!({"end": "last", "replies": [reply.clone()]}), &project, &[]);
            ran.ended("cut", "");
            assert_eq!(ran.requests.len(), 2, "{protocol} {cut}");
            assert!(!project.0.join("acted").exists(), "{protocol} {cut}");
            reply["times"] = json!(1);
            let ran = run(protocol, &json!({"replies": [reply, {"text": "whole"}]}));
            assert_eq!((ran.code, &ran.result()["text"]), (Some(0), &json!("whole")), "{protocol} {cut}");
        }
    }
    // An error event in the stream is a cut too.
    let broken = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nevent: error\ndata: \
        {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded FAKE\"}}\n\n";
    let ran = run("messages", &json!({"replies": [{"raw": broken, "times": 2}]}));
    ran.ended("cut", "Overloaded FAKE");
}

/// Whatever the model calls a tool with, it gets an answer and the loop goes on.
#[test]
fn malformed_tool_input_is_answered_with_an_error() {
    for protocol in BOTH {
        for (call, words) in [
            (json!({"name": "bash", "raw": "{\"command\": \"ec"}), "not JSON"),
            (json!({"name": "bash", "raw": "[1]"}), "not an object"),
            (json!({"name": "bash", "input": {"command": 7}}), "not a string"),
            (json!({"name": "bash", "input": {}}), "needs command"),
            (json!({"name": "bash", "input": {"command": "true", "seconds": -1}}), "positive integer"),
            (json!({"name": "rm", "input": {}}), "no tool"),
            (json!({"name": "read", "input": {"path": "missing"}}), "cannot read missing"),
            (json!({"name": "read", "input": {"path": "."}}), "not a regular file"),
            (json!({"name": "read", "input": {"path": "/dev/zero"}}), "not a regular file"),
            (json!({"name": "write", "input": {"path": "", "content": ""}}), "cannot write"),
            (json!({"name": "edit", "input": {"path": "f", "old": "no", "new": "x"}}), "does not stand"),
            (json!({"name": "edit", "input": {"path": "f", "old": "a", "new": "x"}}), "2 times"),
        ] {
            let project = Project::new();
            std::fs::write(project.0.join("f"), "a a").unwrap();
            let script = json!({"replies": [{"tools": [call]}, {"text": "fine"}]});
            let ran = run_with(protocol, &script, &project, &[]);
            assert_eq!(ran.code, Some(0), "{:?}", ran.lines);
            assert!(
                ran.of("tool_error")[0]["text"].as_str().unwrap().contains(words),
                "{words}: {:?}",
                ran.lines
            );
            let messages = ran.body(1)["messages"].to_string();
            assert!(messages.contains(words), "{messages}");
            let mark = if protocol == "messages" { "\"is_error\":true" } else { "ERROR: " };
            assert!(messages.contains(mark), "{messages}");
            assert_eq!(project.read("f"), "a a");
        }
    }
}

#[test]
fn bash_is_bounded_in_time_and_output_and_leaves_nothing_running() {
    let project = Project::new();
    let script = json!({"replies": [
        tool("bash", json!({"command": "echo start; sleep 300; echo never", "seconds": 1})),
        tool("bash", json!({"command": "sleep 300 & echo $! > pid; echo back"})),
        tool("bash", json!({"command": "yes 0123456789 | head -c 200000; echo; echo the-end"})),
        tool("bash", json!({"command": "kill -9 $$"})),
        tool("bash", json!({"command": "env; exit 3"})),
        {"text": "done"}]});
    let ran = run_with("messages", &script, &project, &[]);
    assert_eq!(ran.code, Some(0), "{:?}", ran.lines);
    let result = |n: usize| {
        let body = ran.body(n);
        body["messages"].as_array().unwrap().last().unwrap()["content"][0].clone()
    };
    assert!(result(1)["content"].as_str().unwrap().starts_with("start\n(killed after 1 s)"), "{}", result(1));
    assert_eq!((&result(2)["content"], &result(2)["is_error"]), (&json!("back\n"), &json!(false)));
    let pid = project.read("pid");
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    assert!(!cmdline.starts_with(b"sleep"), "the sleep is still there");
    let long = result(3)["content"].as_str().unwrap().to_string();
    assert!(
        long.len() < 17_000 && long.starts_with("0123456789\n") && long.ends_with("the-end\n"),
        "{}",
        long.len()
    );
    assert!(long.contains("bytes left out here"));
    assert!(result(4)["content"].as_str().unwrap().contains("killed by signal 9"));
    let env = result(5)["content"].as_str().unwrap().to_string();
    assert!(env.contains("(exit code 3)") && !env.contains("SANDUK") && !env.contains("run-token"), "{env}");
}

/// The workspace steers nothing: files that other agents read are not opened, and a link is a file like any other.
#[test]
fn the_workspace_steers_nothing() {
    let project = Project::new();
    for name in ["AGENTS.md", "CLAUDE.md", ".mini.json", "mini.json", ".env"] {
        std::fs::write(project.0.join(name), "FAKE-STEERING").unwrap();
    }
    let ran = run_with("chat", &json!({"replies": [{"text": "done"}]}), &project, &[]);
    assert_eq!(ran.code, Some(0));
    assert!(!ran.body(0).to_string().contains("FAKE-STEERING"));
    assert!(ran.body(0)["messages"][1]["content"] == "do the work");
}

#[test]
fn write_keeps_permissions_and_follows_a_link() {
    let project = Project::new();
    std::fs::write(project.0.join("real.sh"), "old").unwrap();
    std::fs::set_permissions(project.0.join("real.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    std::os::unix::fs::symlink("real.sh", project.0.join("link.sh")).unwrap();
    let script =
        json!({"replies": [tool("write", json!({"path": "link.sh", "content": "new"})), {"text": "done"}]});
    let ran = run_with("messages", &script, &project, &[]);
    assert_eq!(ran.code, Some(0), "{:?}", ran.lines);
    assert_eq!(project.read("real.sh"), "new");
    assert!(project.0.join("link.sh").is_symlink());
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(project.0.join("real.sh")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(std::fs::read_dir(&project.0).unwrap().count(), 2, "a temporary file was left");
}

/// It asks for identity; a compressed answer is refused by name, not misread.
#[test]
fn a_compressed_answer_is_refused() {
    for protocol in BOTH {
        run(protocol, &json!({"replies": [{"text": "x", "gzip": true}]})).ended("error", "compressed");
    }
    run("messages", &json!({"replies": [{"body": "{}"}]})).ended("error", "not an event stream");
}

#[test]
fn interim_answers_slow_events_and_every_framing_are_read() {
    for protocol in BOTH {
        for framing in ["chunked", "length", "close"] {
            let reply = json!({"text": "grüße 🚀", "interim": [100, 103], "framing": framing, "delay_ms": 5});
            let ran = run(protocol, &json!({"replies": [reply]}));
            assert_eq!(
                (ran.code, &ran.result()["text"]),
                (Some(0), &json!("grüße 🚀")),
                "{protocol} {framing}"
            );
        }
    }
}

/// An answer that ended at the token cap is not an ending: it goes on, and gives up where that does not help.
#[test]
fn the_token_cap_is_not_an_ending() {
    for protocol in BOTH {
        let capped = json!({"text": "half", "stop": "length"});
        let ran = run(protocol, &json!({"replies": [capped, {"text": "the rest"}]}));
        assert_eq!((ran.code, &ran.result()["text"]), (Some(0), &json!("the rest")));
        let ran = run(protocol, &json!({"end": "last", "replies": [capped]}));
        ran.ended("error", "token cap");
        assert_eq!(ran.requests.len(), 4);
    }
    run("messages", &json!({"replies": [{}]})).ended("error", "without having said anything");
    // Reasons that are no good end, known or not, and whatever text came with them.
    for (protocol, stop) in
        [("messages", "refusal"), ("chat", "content_filter"), ("messages", "invented_2099")]
    {
        run(protocol, &json!({"replies": [{"text": "half a", "stop": stop}]})).ended("error", stop);
    }
}

/// Servers differ in how they number the pieces of tool calls.
#[test]
fn tool_call_pieces_are_put_together() {
    let call = |index: Value, id: Value, name: Value, arguments: &str| {
        let mut piece = json!({"function": {"arguments": arguments}});
        for (member, value) in [("index", index), ("id", id)] {
            if !value.is_null() {
                piece[member] = value;
            }
        }
        if !name.is_null() {
            piece["function"]["name"] = name;
        }
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}, "finish_reason": null}]})
    };
    let (no, write) = (Value::Null, json!("write"));
    let (a, b) = (r#"{"path":"a","content":"#, r#"{"path":"b","content":"#);
    for pieces in [
        // In order, from 1, without an index, and all with the same one.
        [
            call(json!(0), json!("x"), write.clone(), a),
            call(json!(0), no.clone(), no.clone(), "\"1\"}"),
            call(json!(1), json!("y"), write.clone(), b),
            call(json!(1), no.clone(), no.clone(), "\"2\"}"),
        ],
        [
            call(json!(1), json!("x"), write.clone(), a),
            call(json!(2), json!("y"), write.clone(), b),
            call(json!(1), json!("x"), no.clone(), "\"1\"}"),
            call(json!(2), json!("y"), no.clone(), "\"2\"}"),
        ],
        [
            call(no.clone(), json!("x"), write.clone(), a),
            call(no.clone(), no.clone(), no.clone(), "\"1\"}"),
            call(no.clone(), json!("y"), write.clone(), b),
            call(no.clone(), no.clone(), no.clone(), "\"2\"}"),
        ],
        [
            call(json!(0), json!("x"), write.clone(), a),
            call(json!(0), no.clone(), no.clone(), "\"1\"}"),
            call(json!(0), json!("y"), write.clone(), b),
            call(json!(0), no.clone(), no.clone(), "\"2\"}"),
        ],
    ] {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
        let events: String = pieces.iter().chain([&end]).map(|e| format!("data: {e}\n\n")).collect();
        let raw = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
            events.len()
        );
        let project = Project::new();
        let ran = run_with("chat", &json!({"replies": [{"raw": raw}, {"text": "done"}]}), &project, &[]);
        assert_eq!((ran.code, ran.of("tool_error").len()), (Some(0), 0), "{:?}", ran.lines);
        assert_eq!((project.read("a"), project.read("b")), ("1".into(), "2".into()));
    }
}

/// A long conversation stays within what a model takes; the newest output is whole.
#[test]
fn old_output_leaves_a_long_conversation() {
    for protocol in BOTH {
        let project = Project::new();
        let script = json!({"order": "arrival", "replies": [
            {"tools": [{"name": "bash", "input": {"command": "head -c 15000 /dev/zero | tr '\\0' x"}}], "times": 30}, {"text": "done"}]});
        let ran = run_with(protocol, &script, &project, &[]);
        assert_eq!((ran.code, ran.requests.len()), (Some(0), 31), "{:?}", ran.result());
        let largest = ran.requests.iter().map(|r| r["body"].as_str().unwrap().len()).max().unwrap();
        assert!(largest < 450 * 1024, "{largest}");
        let last = ran.body(30);
        assert!(last["messages"].as_array().unwrap().last().unwrap().to_string().contains("xxxxx"));
        assert!(
            last.to_string().contains("left out to save room") && last.to_string().contains("do the work")
        );
    }
}

/// TRAPS 77: what was not counted is not zero.
#[test]
fn trap_77_missing_usage_is_not_zero() {
    for protocol in BOTH {
        let ran = run(protocol, &json!({"replies": [{"text": "x", "usage": null}]}));
        assert_eq!(*ran.of("usage")[0], json!({"type": "usage"}), "{protocol}");
    }
    let ran =
        run("chat", &json!({"replies": [{"text": "x", "usage": {"input": 5, "output": 2}, "cost": 0.5}]}));
    assert_eq!(*ran.of("usage")[0], json!({"type": "usage", "input": 5, "output": 2, "cost": 0.5}));
}

#[test]
fn wrong_settings_are_one_line_and_exit_2() {
    let project = Project::new();
    let none = Mutex::new(Vec::new());
    let base = "http://127.0.0.1:9/v1";
    for (protocol, base, more, task, words) in [
        ("messages", "https://api.anthropic.com", ("A", "b"), "x", "mini has no TLS"),
        ("messages", "https://api.anthropic.com", ("A", "b"), "x", "sealed or key-safe"),
        ("messages", "ftp://x", ("A", "b"), "x", "no http URL"),
        ("messages", "http://localhost:9", ("A", "b"), "x", "ADDRESS:PORT"),
        ("responses", base, ("A", "b"), "x", "messages and chat"),
        ("chat", base, ("SANDUK_MINI_MODEL", ""), "x", "--model"),
        ("chat", base, ("SANDUK_MINI_MAX_TURNS", "0"), "x", "turn limit"),
        ("chat", base, ("SANDUK_MINI_PROFILE", "poet"), "x", "profile"),
        ("chat", base, ("A", "b"), " \n", "empty"),
    ] {
        let ran = finish(command(&project.0, protocol, base, &[more]), task.as_bytes(), &none);
        assert_eq!((ran.code, ran.lines.len()), (Some(2), 0), "{words}");
        assert!(ran.stderr.contains(words) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    }
}

#[test]
fn a_task_of_a_megabyte_arrives_whole() {
    let project = Project::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    let record = Box::new(move |line: &str| kept.lock().unwrap().push(serde_json::from_str(line).unwrap()));
    let address = provider::start("127.0.0.1:0", provider::named("text").unwrap(), record).unwrap();
    let task = "-x \"'$é\n".repeat(128 * 1024);
    let ran = finish(
        command(&project.0, "messages", &format!("http://{address}"), &[]),
        task.as_bytes(),
        &requests,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.body(0)["messages"][0]["content"][0]["text"] == task.as_str());
}
