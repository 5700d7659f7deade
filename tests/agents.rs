//! Agent files and the reader: the shipped ones, and files for agents that are not shipped yet, over recordings of the real
//! programs (`tests/data/agents/`), so that the rule language is known to carry them. Then hostile streams.
#![expect(clippy::disallowed_methods, reason = "tests")]

use sanduk::catalog::agents::{self, Agent, Profile, TurnInput};
use sanduk::catalog::providers::Protocol;
use sanduk::limits::{ANSWER_BYTES, ARG_BYTES, READ_LINE_BYTES};
use sanduk::run::read::{Outcome, Reader, Trace};
use sanduk::wire::control::{Line, TurnEnd, What};
use serde_json::{Value, json};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/agents/");

fn file(name: &str) -> String {
    std::fs::read_to_string(format!("{DATA}{name}")).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn agent(name: &str) -> Agent {
    match agents::shipped(name) {
        Some(agent) => agent,
        None => {
            Agent::parse(file(&format!("{name}.json")).as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"))
        }
    }
}

const AGENTS: [&str; 7] = ["mini", "claude", "codex", "pi", "opencode", "hermes", "hax"];

fn out(text: &str) -> What {
    What::Stdout(Line { text: text.into(), more: false })
}

fn err(text: &str) -> What {
    What::Stderr(Line { text: text.into(), more: false })
}

fn end(code: i32) -> What {
    What::TurnEnd(TurnEnd { turn: "t1".into(), code: Some(code), signal: None })
}

fn lines(text: &str) -> Vec<What> {
    text.lines().map(out).collect()
}

fn read(agent: &Agent, events: &[What]) -> (Outcome, Vec<Trace>) {
    let mut reader = Reader::new(agent);
    let trace = events.iter().flat_map(|e| reader.push(e)).collect();
    let mut twin = Reader::new(agent);
    events.iter().for_each(|e| drop(twin.push(e)));
    assert_eq!(reader.outcome(), twin.outcome());
    let outcome = reader.outcome();
    (
        Outcome {
            text: outcome.text.clone(),
            error: outcome.error.clone(),
            session: outcome.session.clone(),
            ..*outcome
        },
        trace,
    )
}

/// A recording of `agent`, with the exit code the program had.
fn recorded(name: &str, recording: &str, code: i32) -> (Outcome, Vec<Trace>) {
    let mut events = lines(&file(recording));
    events.push(end(code));
    read(&agent(name), &events)
}

#[track_caller]
fn good(outcome: &Outcome, text: &str, input: u64, output: u64) {
    assert!(outcome.finished && outcome.ok && !outcome.max_turns, "{outcome:?}");
    assert_eq!((outcome.text.as_str(), outcome.error.as_str()), (text, ""));
    assert_eq!((outcome.input, outcome.output), (Some(input), Some(output)));
}

#[track_caller]
fn bad(outcome: &Outcome, error: &str) {
    assert!(outcome.finished && !outcome.ok && !outcome.max_turns, "{outcome:?}");
    assert!(outcome.error.contains(error) && !error.is_empty(), "{outcome:?}");
}

fn tools(trace: &[Trace]) -> Vec<(&str, &str)> {
    trace
        .iter()
        .filter_map(|t| if let Trace::Tool(n, a) = t { Some((n.as_str(), a.as_str())) } else { None })
        .collect()
}

fn count(trace: &[Trace], warnings: bool) -> usize {
    trace
        .iter()
        .filter(|t| if warnings { matches!(t, Trace::Warning(_)) } else { matches!(t, Trace::Text(_)) })
        .count()
}

#[test]
fn claude_recordings() {
    let (outcome, trace) = recorded("claude", "claude-plain.jsonl", 0);
    good(&outcome, "Hi there", 12665, 20);
    assert_eq!(outcome.session.as_deref(), Some("fd809960-27f1-465a-a591-9b21bfc9a6bc"));
    assert_eq!(
        (outcome.turns, outcome.cost, outcome.cumulative),
        (Some(1), Some(0.051059999999999994), true)
    );
    assert_eq!(trace, [Trace::Text("Hi there".into())]);

    let (outcome, trace) = recorded("claude", "claude-write-bypass.jsonl", 0);
    good(&outcome, "Done", 25526, 40);
    assert_eq!(tools(&trace), [("Write", "/workspace/out.txt")]);

    let (outcome, trace) = recorded("claude", "claude-max-turns.jsonl", 1);
    assert!(outcome.finished && !outcome.ok && outcome.max_turns, "{outcome:?}");
    assert_eq!(outcome.error, "Reached maximum number of turns (2)");
    assert_eq!((outcome.text.as_str(), outcome.turns), ("", Some(3)));
    assert_eq!(tools(&trace), [("Bash", "echo turn"), ("Bash", "echo turn")]);

    for (recording, error) in [
        ("claude-err-402-billing.jsonl", "402 Run budget exhausted"),
        ("claude-err-401-max1.jsonl", "401 fake 401"),
        ("claude-max-budget.jsonl", "maximum budget"),
        ("claude-sig-int-tool.jsonl", "ede_diagnostic"),
        ("claude-sess-6-resume-unknown.jsonl", "No conversation found"),
    ] {
        // The exit code is not what decides: after SIGINT it is 0.
        bad(&recorded("claude", recording, 0).0, error);
    }
    for (recording, error) in
        [("claude-err-403.jsonl", "403 fake 403"), ("claude-err-529-max0.jsonl", "529 fake 529")]
    {
        let (outcome, _) = recorded("claude", recording, 1);
        // `subtype` says success here.
        bad(&outcome, error);
        assert_eq!((outcome.input, outcome.cost), (Some(0), Some(0.0)));
    }
    // A stream that was cut and asked for again is one turn, and good.
    good(&recorded("claude", "claude-err-cut-tool.jsonl", 0).0, "ok after cut", 9232, 21);
    good(&recorded("claude", "claude-unknown-model.jsonl", 0).0, "ok", 12567, 20);
    let (outcome, _) = recorded("claude", "claude-sess-2-resume.jsonl", 0);
    good(&outcome, "Bob", 4562, 20);
    assert_eq!((outcome.cost, outcome.cumulative), (Some(0.037172), true), "of both processes");
    // A result of a turn that was interrupted, then one that ended well: the last one counts.
    let text = file("claude-sj-interrupt-tool.jsonl");
    let until = text.lines().position(|l| l.contains("aborted_tools")).unwrap();
    let interrupted: Vec<&str> = text.lines().take(until + 1).collect();
    bad(&read(&agent("claude"), &lines(&interrupted.join("\n"))).0, "ede_diagnostic");
    good(&recorded("claude", "claude-sj-interrupt-tool.jsonl", 0).0, "after interrupt", 4529 + 4781, 40);
    // A subagent in the background: a result before its end, and one after.
    let (outcome, trace) = recorded("claude", "claude-agent.jsonl", 0);
    good(&outcome, "bye2", 11774 + 6379, 60);
    assert_eq!(outcome.cost, Some(0.091716));
    assert!(!tools(&trace).is_empty());
    // What it says on standard error before it gives up.
    let refused =
        "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons";
    let (outcome, trace) = read(&agent("claude"), &[err(refused), err("Error: no"), end(1)]);
    assert!(!outcome.finished && !outcome.ok);
    assert_eq!(trace, [Trace::Warning(refused.into()), Trace::Warning("Error: no".into())]);
    // Two results in one run: figures of each are its own, the money is not.
    let (outcome, trace) = recorded("claude", "claude-bg-bash.jsonl", 0);
    good(&outcome, "bye2", 7125 + 3885, 60);
    assert_eq!((outcome.cost, count(&trace, false)), (Some(0.04524), 2));
    let (_, trace) = recorded("claude", "claude-hook-pre-deny.jsonl", 0);
    assert_eq!(count(&trace, true), 1, "{trace:?}");
    // The turn that a background task started, cut: not finished, although there was a result before.
    let text = file("claude-bg-bash.jsonl");
    let whole: Vec<&str> = text.lines().collect();
    let (outcome, _) = read(&agent("claude"), &lines(&whole[..whole.len() - 1].join("\n")));
    assert!(!outcome.finished && !outcome.ok);
}

#[test]
fn codex_recordings() {
    let (outcome, trace) = recorded("codex", "codex-tool.jsonl", 0);
    good(&outcome, "DONE-ANSWER: the report is written.", 2468, 112);
    assert_eq!(outcome.session.as_deref(), Some("01a22c62-a6f2-7733-ad39-0a36606d5439"));
    assert!(outcome.cumulative && outcome.cost.is_none() && outcome.turns.is_none());
    assert_eq!(tools(&trace).len(), 1, "once per command");
    assert_eq!(count(&trace, true), 1);
    let (_, trace) = recorded("codex", "codex-mcpcall.jsonl", 0);
    assert_eq!(tools(&trace), [("ping", "{\"x\":\"1\"}")]);
    // `error` lines are retries too: a run that recovered is good.
    let (outcome, trace) = recorded("codex", "codex-cutonce.jsonl", 0);
    good(&outcome, "PLAIN-ANSWER: four.", 1234, 56);
    assert_eq!(count(&trace, true), 2);
    bad(&recorded("codex", "codex-err402.jsonl", 1).0, "over budget FAKE402");
    bad(&recorded("codex", "codex-cut.jsonl", 1).0, "stream disconnected");
    bad(&recorded("codex", "codex-len.jsonl", 1).0, "max_output_tokens");
}

#[test]
fn pi_and_prime_recordings() {
    for recording in ["pi-tool.jsonl", "prime-tool.jsonl"] {
        let (outcome, trace) = recorded("pi", recording, 0);
        good(&outcome, "DONE-ANSWER: the report is written.", 2 * 1234, 112);
        assert_eq!((outcome.turns, tools(&trace).len(), count(&trace, false)), (Some(2), 1, 1));
    }
    // Exit code 0 each time: the stop reason of the last message decides.
    bad(&recorded("pi", "pi-err401.jsonl", 0).0, "401");
    bad(&recorded("pi", "prime-err401.jsonl", 0).0, "401 invalid x-api-key");
    bad(&recorded("pi", "pi-cut.jsonl", 0).0, "terminated");
    bad(&recorded("pi", "pi-len.jsonl", 0).0, "length");
    good(&recorded("pi", "pi-cutonce.jsonl", 0).0, "PLAIN-ANSWER: four.", 1234, 56);
}

#[test]
fn opencode_recordings() {
    let (outcome, trace) = recorded("opencode", "opencode-tool.jsonl", 0);
    // Cache is outside input and reasoning outside output, here.
    good(&outcome, "DONE-ANSWER: the report is written.", 2 * 1234, 112);
    assert_eq!((outcome.turns, outcome.cost, tools(&trace).len()), (Some(2), Some(0.0), 1));
    bad(&recorded("opencode", "opencode-err402.jsonl", 1).0, "over budget FAKE402");
    bad(&recorded("opencode", "opencode-cut.jsonl", 1).0, "Connection reset");
    bad(&recorded("opencode", "opencode-len.jsonl", 0).0, "length");
    good(&recorded("opencode", "opencode-cutonce.jsonl", 0).0, "PLAIN-ANSWER: four.", 1234, 56);
}

/// Agents whose output is plain text: the ending comes from a record on standard error, or from the exit code.
#[test]
fn text_agents() {
    let record = |name: &str| serde_json::from_str::<Value>(&file(name)).unwrap().to_string();
    for (name, code) in [("hermes-tool", 0), ("hermes-err401", 0), ("hermes-len", 0)] {
        let mut events = lines(&file(&format!("{name}.jsonl")));
        events.extend([err(&record(&format!("{name}.stderr"))), end(code)]);
        let (outcome, _) = read(&agent("hermes"), &events);
        assert!(outcome.finished);
        assert_eq!(outcome.ok, name == "hermes-tool", "exit 0 says nothing: {name}");
        if outcome.ok {
            good(&outcome, "DONE-ANSWER: the report is written.", 2468, 112);
            assert_eq!(
                (outcome.turns, outcome.session.as_deref()),
                (Some(2), Some("20261130_122758_b941ee"))
            );
        } else {
            assert_eq!((outcome.input, outcome.output), (None, None));
        }
    }
    let mut events = vec![out("first"), out(""), out("{\"third\":3}")];
    events.extend(file("hax-tool.stderr").lines().map(err));
    let hax = agent("hax");
    assert!(!read(&hax, &events).0.finished, "not before it ended");
    events.push(end(0));
    let (outcome, _) = read(&hax, &events);
    assert!(outcome.ok);
    assert_eq!(outcome.text, "first\n\n{\"third\":3}");
    assert_eq!(outcome.session.as_deref(), Some("a598b799-cd41-4471-a298-f773186d49e8"));
    let mut events: Vec<What> = file("hax-err401.stderr").lines().map(err).collect();
    events.push(end(1));
    let (outcome, trace) = read(&hax, &events);
    assert!(outcome.finished && !outcome.ok);
    assert_eq!(trace, [Trace::Warning("HTTP 401: invalid x-api-key FAKE401".into())]);
}

#[test]
fn mini_lines() {
    let mini = agent("mini");
    let used = r#"{"type":"usage","input":10,"output":2,"cost":0.25}"#;
    let run = |result: &str| {
        read(&mini, &lines(&[r#"{"type":"start","session":"s1"}"#, used, used, result].join("\n"))).0
    };
    let outcome = run(
        r#"{"type":"result","ok":true,"ending":"done","text":"it is done","error":"","turns":2,"session":"s1"}"#,
    );
    good(&outcome, "it is done", 20, 4);
    assert_eq!((outcome.turns, outcome.cost, outcome.session.as_deref()), (Some(2), Some(0.5), Some("s1")));
    let outcome =
        run(r#"{"type":"result","ok":false,"ending":"max_turns","text":"half","error":"stopped","turns":2}"#);
    assert!(outcome.finished && !outcome.ok && outcome.max_turns && outcome.error == "stopped");
    // `ok` alone, or `done` alone, is not a good ending.
    for result in
        [r#"{"type":"result","ok":true,"ending":"cut"}"#, r#"{"type":"result","ok":false,"ending":"done"}"#]
    {
        bad(&run(result), serde_json::from_str::<Value>(result).unwrap()["ending"].as_str().unwrap());
    }
}

/// TRAPS 19: a clean exit without a final record is not success. TRAPS 21: what was counted until then is kept.
#[test]
fn trap_19_21_no_final_record() {
    for (name, recording) in [
        ("claude", "claude-sig-term-tool.jsonl"),
        ("codex", "codex-tool.jsonl"),
        ("opencode", "opencode-tool.jsonl"),
        ("pi", "pi-tool.jsonl"),
    ] {
        let text = file(recording);
        let last = |l: &&str| {
            !["turn.completed", "\"reason\":\"stop\"", "\"stopReason\":\"stop\""]
                .iter()
                .any(|w| l.contains(w))
        };
        let cut: Vec<&str> = text.lines().filter(last).collect();
        let mut events = lines(&cut.join("\n"));
        events.push(end(0));
        let (outcome, _) = read(&agent(name), &events);
        assert!(!outcome.finished && !outcome.ok, "{name}: {outcome:?}");
        if name == "opencode" || name == "pi" {
            assert_eq!((outcome.input, outcome.output), (Some(1234), Some(56)), "{name}");
        }
    }
}

/// TRAPS 1: shapes that killed another reader; none may do more than nothing.
#[test]
fn trap_1_unexpected_shapes() {
    let shapes = [
        r#"{"type":"assistant","message":null}"#,
        r#"{"type":"assistant","message":{"content":"a string"}}"#,
        r#"{"type":"assistant","message":{"content":[null,1,"x",[],{"type":"text","text":7},{"type":"tool_use","name":[]}]}}"#,
        r#"{"type":"result","usage":[],"is_error":"no","result":{},"num_turns":-1,"total_cost_usd":"free"}"#,
        r#"{"type":"result","is_error":false,"terminal_reason":null,"result":null}"#,
        r#"{"type":"item.completed","item":[]}"#,
        r#"{"type":"turn.completed.","usage":7}"#,
        r#"{"type":"usage","input":1e400,"output":-5,"cost":-1}"#,
        r#"{"type":"usage","input":18446744073709551616,"output":1.5,"cost":null}"#,
        r#"{"type":{"type":"result"}}"#,
        "{}",
        "[]",
        "null",
        "\"type\"",
        "{",
        "{\"type\":\"result\"",
        "",
        " ",
        "\u{fffd}\u{fffd}{}",
        "\0",
        "{\"a\":1}{\"b\":2}",
    ];
    let deep =
        ["{\"a\":".repeat(100_000), "[".repeat(100_000), format!("{{\"a\":[{}]}}", "{},".repeat(300_000))];
    for name in AGENTS {
        let agent = agent(name);
        let events: Vec<What> =
            shapes.iter().copied().chain(deep.iter().map(String::as_str)).map(out).collect();
        let (outcome, _) = read(&agent, &events);
        assert!(!outcome.ok, "{name}: {outcome:?}");
        assert_eq!((outcome.input, outcome.output, outcome.cost), (None, None, None), "{name}");
    }
}

/// TRAPS 30: a line is put together from its pieces up to a bound; a longer one is skipped, and the next is read.
#[test]
fn trap_30_long_lines() {
    let mini = agent("mini");
    let more = |text: &str, more: bool| What::Stdout(Line { text: text.into(), more });
    let piece = "x".repeat(64 * 1024);
    let mut reader = Reader::new(&mini);
    reader.push(&more(r#"{"type":"text","text":""#, true));
    for _ in 0..16 {
        assert!(reader.push(&more(&piece, true)).is_empty());
        // The other stream does not mix in.
        reader.push(&err("noise"));
    }
    let trace = reader.push(&more("\"}", false));
    assert_eq!(trace, [Trace::Text("x".repeat(1024 * 1024))]);
    reader.push(&more(r#"{"type":"text","text":""#, true));
    for _ in 0..READ_LINE_BYTES / piece.len() + 2 {
        reader.push(&more(&piece, true));
    }
    let trace = reader.push(&more("\"}", false));
    assert!(matches!(&trace[..], [Trace::Warning(w)] if w.contains("skipped")), "{}", trace.len());
    assert_eq!(reader.push(&out(r#"{"type":"text","text":"next"}"#)), [Trace::Text("next".into())]);
    // A line that would become a tree of hundreds of megabytes is not read; brackets inside a string are no tree.
    let wide = format!("{{\"type\":\"text\",\"text\":\"x\",\"pad\":[{}0]}}", "0,".repeat(250_000));
    assert!(reader.push(&out(&wide)).is_empty());
    let code = format!("{{\"type\":\"text\",\"text\":\"{}\\\"\"}}", "{[,".repeat(250_000));
    assert_eq!(reader.push(&out(&code)).len(), 1);
    // A last line without its end is read when the turn ends, unless it was cut in the middle.
    reader.push(&more(r#"{"type":"result","ok":true,"ending":"done","text":"t"}"#, true));
    reader.push(&end(0));
    assert!(reader.outcome().ok);
    let mut reader = Reader::new(&mini);
    reader.push(&more(r#"{"type":"result","ok":true,"ending":"done","text":"t"#, true));
    reader.push(&end(0));
    assert!(!reader.outcome().finished);
    let answer = json!({"type": "result", "ok": true, "ending": "done", "text": "é".repeat(ANSWER_BYTES)});
    let (outcome, _) = read(&mini, &[out(&answer.to_string())]);
    assert!(outcome.ok && outcome.text.len() <= ANSWER_BYTES && outcome.text.len() > ANSWER_BYTES - 4);
}

/// TRAPS 77: a counter that was not there is not zero, and one that is there is not lost by a later line without it.
#[test]
fn trap_77_absent_counters() {
    let codex = agent("codex");
    let (outcome, _) = read(&codex, &[out(r#"{"type":"turn.completed","usage":{"prompt_tokens":5}}"#)]);
    assert!(outcome.ok && outcome.input.is_none() && outcome.output.is_none());
    let (outcome, _) = read(
        &codex,
        &lines("{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":5}}\n{\"type\":\"turn.completed\"}"),
    );
    assert_eq!((outcome.input, outcome.output), (Some(5), None));
    let huge = format!("{{\"type\":\"usage\",\"input\":{0},\"output\":{0},\"cost\":1e308}}", u64::MAX);
    let (outcome, _) = read(&agent("mini"), &[out(&huge), out(&huge), out(&huge)]);
    assert_eq!((outcome.input, outcome.cost), (Some(u64::MAX), Some(f64::MAX)));
}

/// A small generator (xorshift64*), so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}

fn odd(random: &mut Random) -> Value {
    let shapes = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{1b}[2J\u{0}"),
        json!([]),
        json!({}),
        json!([[[{"type": "text", "text": []}]]]),
        json!({"type": "result"}),
        json!("ok"),
        json!(false),
        json!("error"),
    ];
    shapes[random.next(shapes.len())].clone()
}

fn twist(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(members) if !members.is_empty() && random.next(5) > 0 => {
            let at = random.next(members.len());
            if random.next(8) == 0 {
                let name = members.keys().nth(at).unwrap().clone();
                members.remove(&name);
            } else if let Some(member) = members.values_mut().nth(at) {
                twist(member, random);
            }
        }
        Value::Array(items) if !items.is_empty() && random.next(4) > 0 => {
            let at = random.next(items.len());
            twist(&mut items[at], random);
        }
        other => *other = odd(random),
    }
}

/// TRAPS 1, at random: bytes of recordings and members of their records are changed; the reader stays total and bounded. The seed
/// is fixed; `SANDUK_FUZZ=N` runs more.
#[test]
fn trap_1_mutated_recordings() {
    let rounds: usize = std::env::var("SANDUK_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let mut random = Random(0x5eed_cafe);
    let mut recordings = Vec::new();
    for entry in std::fs::read_dir(DATA).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".jsonl") {
            recordings.push(file(&name).lines().map(str::to_string).collect::<Vec<_>>());
        }
    }
    let agents: Vec<Agent> = AGENTS.iter().map(|name| agent(name)).collect();
    for round in 0..rounds {
        let recording = &recordings[random.next(recordings.len())];
        let agent = &agents[random.next(agents.len())];
        let mut reader = Reader::new(agent);
        for line in recording {
            let mut bytes = line.clone().into_bytes();
            match random.next(4) {
                0 => {
                    for _ in 0..=random.next(4) {
                        let at = random.next(bytes.len());
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = random.next(256) as u8;
                        }
                    }
                }
                1 => bytes.truncate(random.next(bytes.len())),
                2 => {
                    if let Ok(mut value) = serde_json::from_str(line) {
                        twist(&mut value, &mut random);
                        bytes = value.to_string().into_bytes();
                    }
                }
                _ => {}
            }
            let line = Line { text: String::from_utf8_lossy(&bytes).into_owned(), more: random.next(9) == 0 };
            reader.push(&if random.next(9) == 0 { What::Stderr(line) } else { What::Stdout(line) });
        }
        reader.push(&end(0));
        let outcome = reader.outcome();
        assert!(
            !outcome.ok || (outcome.finished && !outcome.max_turns && outcome.error.is_empty()),
            "round {round}"
        );
        assert!(outcome.cost.is_none_or(|c| c.is_finite() && c >= 0.0), "round {round}");
        assert!(outcome.text.len() <= ANSWER_BYTES, "round {round}");
    }
}

fn input<'a>(protocol: Protocol, task: &'a str) -> TurnInput<'a> {
    TurnInput {
        id: "t1",
        task,
        protocol,
        base_url: "http://127.0.0.1:4000/v1",
        token: "run-token",
        model: Some("m\"1{task}"),
        max_turns: None,
        effort: None,
        permission_mode: None,
        allowed_tools: None,
        bare: false,
        home: "/home/agent",
        root: false,
    }
}

#[test]
fn shipped_agents_load_and_render() {
    assert!(agents::names().is_sorted());
    for name in agents::names() {
        assert_eq!(agents::shipped(name).expect(name).name, name);
    }
    let mini = agent("mini");
    assert!(
        mini.task_on_stdin
            && mini.image().is_none()
            && mini.protocols == [Protocol::Messages, Protocol::Chat]
    );
    // TRAPS 85: a task is data wherever it stands, whatever it begins with.
    let task = "--help {token} {model:json}\n";
    let turn = mini.render(&TurnInput { max_turns: Some(7), ..input(Protocol::Chat, task) }).unwrap();
    assert_eq!((turn.id.as_str(), turn.stdin.as_str()), ("t1", task));
    assert_eq!(turn.argv, ["/sanduk", "mini"]);
    let env = |name: &str| turn.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(env("SANDUK_MINI_PROTOCOL"), Some("chat"));
    assert_eq!(env("SANDUK_MINI_BASE_URL"), Some("http://127.0.0.1:4000/v1"));
    assert_eq!(env("SANDUK_MINI_TOKEN"), Some("run-token"));
    assert_eq!(env("SANDUK_MINI_MODEL"), Some("m\"1{task}"), "values are not templates");
    assert_eq!(env("SANDUK_MINI_MAX_TURNS"), Some("7"));
    assert_eq!(env("SANDUK_MINI_PROFILE"), Some("coding"));
    assert_eq!(env("HOME"), Some("/home/agent"));
    let general = mini.render_as(Profile::General, &input(Protocol::Messages, "x")).unwrap();
    assert!(general.env.contains(&("SANDUK_MINI_PROFILE".into(), "general".into())));
    assert!(!general.env.iter().any(|(n, _)| n == "SANDUK_MINI_MAX_TURNS"));
    let why = |input: &TurnInput<'_>| mini.render(input).err().unwrap_or_default();
    assert_eq!(why(&TurnInput { model: None, ..input(Protocol::Chat, "x") }), "mini needs --model");
    assert!(why(&input(Protocol::Responses, "x")).contains("does not speak"));
    assert!(why(&TurnInput { model: Some("a\0b"), ..input(Protocol::Chat, "x") }).contains("NUL"));
    // A megabyte is no matter on standard input.
    assert!(mini.render(&input(Protocol::Chat, &"x".repeat(1 << 20))).is_ok());
}

/// What Claude Code is started with: `audit/argv.txt`, word for word; the workspace is switched off in every form, and the task is
/// on standard input, whatever it begins with (TRAPS 85).
#[test]
fn claude_argv() {
    let claude = agent("claude");
    assert!(claude.task_on_stdin && !claude.needs_model() && claude.image() == Some("claude"));
    assert_eq!(
        (claude.program(), &claude.protocols[..]),
        ("/usr/local/bin/claude", &[Protocol::Messages][..])
    );
    let bare = TurnInput { model: None, ..input(Protocol::Messages, "--help") };
    let all = TurnInput {
        model: Some("MODEL"),
        max_turns: Some(9),
        effort: Some("high"),
        permission_mode: Some("dontAsk"),
        allowed_tools: Some("TOOLS"),
        bare: true,
        ..input(Protocol::Messages, "--help")
    };
    let ledger = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/audit/argv.txt")).unwrap();
    let rows: Vec<&str> = ledger.lines().filter_map(|l| l.strip_prefix("EXEC-60 claude | ")).collect();
    let mut shown = Vec::new();
    for turn in [&bare, &all] {
        let turn = claude.render(turn).unwrap();
        assert_eq!((turn.argv[0].as_str(), turn.stdin.as_str()), ("/usr/local/bin/claude", "\n--help"));
        assert!(turn.files.is_empty());
        assert!(turn.argv.windows(2).any(|w| w == ["--setting-sources", ""]), "{:?}", turn.argv);
        assert!(turn.argv.iter().any(|a| a == "--strict-mcp-config"));
        let words = turn.argv[1..].iter().map(|a| if a.is_empty() { "\"\"" } else { a });
        shown.push(words.collect::<Vec<_>>().join(" "));
    }
    assert_eq!(rows, shown);

    let env = |input: &TurnInput<'_>| claude.render(input).unwrap().env;
    let value = |name: &str| env(&bare).into_iter().find(|(n, _)| n == name).map(|(_, v)| v);
    assert_eq!(value("ANTHROPIC_BASE_URL").as_deref(), Some("http://127.0.0.1:4000/v1"));
    assert_eq!(value("ANTHROPIC_API_KEY").as_deref(), Some("run-token"));
    assert_eq!(value("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC").as_deref(), Some("1"));
    assert_eq!(value("CLAUDE_CODE_MAX_RETRIES").as_deref(), Some("2"));
    assert_eq!(value("IS_SANDBOX"), None, "only where it is needed");
    let root = TurnInput { root: true, ..input(Protocol::Messages, "x") };
    assert!(env(&root).contains(&("IS_SANDBOX".into(), "1".into())));
}

/// TRAPS 86: what would have no effect is refused, and the reason named.
#[test]
fn trap_86_claude_flags() {
    let claude = agent("claude");
    let why = |input: TurnInput<'_>| claude.render(&input).err().unwrap_or_default();
    let plain = || input(Protocol::Messages, "x");
    let tools = Some("Bash(git *)");
    assert!(why(TurnInput { allowed_tools: tools, ..plain() }).contains("no tool asks"));
    let bypass = TurnInput { permission_mode: Some("bypassPermissions"), allowed_tools: tools, ..plain() };
    assert!(why(bypass).contains("no tool asks"));
    let asks = TurnInput { permission_mode: Some("dontAsk"), allowed_tools: tools, ..plain() };
    assert_eq!(why(asks), "");
    let why_effort = why(TurnInput { effort: Some("--x"), ..plain() });
    assert!(why_effort.contains("--effort --x") && why_effort.contains("low, medium, high"), "{why_effort}");
    assert!(why(TurnInput { permission_mode: Some("yolo"), ..plain() }).contains("acceptEdits"));
    // The others say which flag it is that they have nothing for.
    let mini = agent("mini");
    for (input, option) in [
        (TurnInput { effort: Some("high"), ..plain() }, "--effort"),
        (TurnInput { permission_mode: Some("plan"), ..plain() }, "--permission-mode"),
        (TurnInput { allowed_tools: tools, ..plain() }, "--allowed-tools"),
        (TurnInput { bare: true, ..plain() }, "--bare"),
    ] {
        assert!(mini.render(&input).err().unwrap_or_default().contains(option), "{option}");
    }
}

/// TRAPS 84: values inside another language are quoted for it. TRAPS 86: a flag that would have no effect is refused, with a reason.
#[test]
fn trap_84_86_quoting_and_refused_flags() {
    let codex = agent("codex");
    let turn =
        codex.render(&TurnInput { base_url: "http://x/\"y", ..input(Protocol::Responses, "t") }).unwrap();
    assert!(
        turn.argv.contains(&r#"model_providers.relay.base_url="http://x/\"y""#.to_string()),
        "{:?}",
        turn.argv
    );
    let at = turn.argv.iter().position(|a| a == "--model").unwrap();
    assert_eq!(turn.argv[at..], ["--model", "m\"1{task}", "-"]);
    let why =
        codex.render(&TurnInput { max_turns: Some(2), ..input(Protocol::Responses, "t") }).err().unwrap();
    assert!(why.contains("--max-turns") && why.contains("no turn limit"), "{why}");
    let why =
        agent("hax").render(&TurnInput { max_turns: Some(2), ..input(Protocol::Chat, "t") }).err().unwrap();
    assert!(why.contains("nothing like --max-turns"), "{why}");
    let pi = agent("pi").render(&input(Protocol::Chat, "t")).unwrap();
    let models: Value = serde_json::from_str(&pi.files[0].1).expect("JSON whatever the model is called");
    assert_eq!(models["providers"]["relay"]["models"][0]["id"], "m\"1{task}");
    assert_eq!(models["providers"]["relay"]["api"], "openai-completions");
    let opencode = agent("opencode").render(&input(Protocol::Messages, "t")).unwrap();
    let config = &opencode.env.iter().find(|(n, _)| n == "OPENCODE_CONFIG_CONTENT").unwrap().1;
    let config: Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["provider"]["relay"]["options"]["baseURL"], "http://127.0.0.1:4000/v1/v1");
    assert_eq!(config["provider"]["relay"]["options"]["apiKey"], "{env:OPENCODE_RELAY_KEY}");
    // A task that is an argument ends where the kernel's strings end.
    let hax = agent("hax");
    let task = "x".repeat(ARG_BYTES);
    assert!(hax.render(&input(Protocol::Chat, &task)).err().unwrap().contains("argument"));
    assert!(!hax.task_on_stdin && hax.render(&input(Protocol::Chat, &task[1..])).is_ok());
}

#[test]
fn broken_agent_files_are_refused() {
    let whole: Value = serde_json::from_str(&file("codex.json")).unwrap();
    assert!(Agent::parse(whole.to_string().as_bytes()).is_ok());
    let rule = |rule: Value| json!([rule, {"when": {"type": "end"}, "ending": "ok"}]);
    for (path, value, words) in [
        ("/name", json!("../x"), "name"),
        ("/name", json!(""), "name"),
        ("/name", json!("-x"), "name"),
        ("/protocols", json!([]), "protocol"),
        ("/protocols", json!([{"protocol": "gopher", "word": "x"}]), "unknown variant"),
        ("/profiles", json!({}), "coding"),
        ("/turn/argv/0", json!("codex"), "absolute"),
        ("/turn/argv/1", json!("{tusk}"), "{tusk} is unknown"),
        ("/turn/argv/1", json!("{model}"), "may be missing"),
        ("/turn/env/0/1", json!("{max_turns}"), "may be missing"),
        ("/turn/stdin", json!("no task"), "neither"),
        ("/turn/files", json!([["../up", ""]]), "plain path"),
        ("/turn/files", json!([["/etc/passwd", ""]]), "plain path"),
        ("/turn/shell", json!("x"), "unknown field"),
        ("/flags/model", json!({"taken": {"args": ["{max_turns}"]}}), "may be missing"),
        ("/flags/model", json!({"taken": {"args": [], "otherwise": ["{model}"]}}), "may be missing"),
        (
            "/flags/model",
            json!({"taken": {"args": [], "idle": {"flag": "colour", "values": [], "why": ""}}}),
            "unknown variant",
        ),
        ("/as_root", json!({"args": ["{model}"]}), "may be missing"),
        ("/flags/colour", json!({"taken": {}}), "unknown variant"),
        ("/more", json!(1), "unknown field"),
        ("/read", json!([]), "good ending"),
        ("/read", rule(json!({"ending": "ok"})), "exactly one"),
        ("/read", rule(json!({"when": {"a": 1}, "starts": "x", "ending": "ok"})), "exactly one"),
        ("/read", rule(json!({"when": {"a": 1}})), "does nothing"),
        ("/read", rule(json!({"when": {"a": [1]}, "ending": "ok"})), "compare with"),
        ("/read", rule(json!({"when": {"a..b": 1}, "ending": "ok"})), "not a path"),
        ("/read", rule(json!({"when": {"a": 1}, "text": [""]})), "not a path"),
        ("/read", rule(json!({"when": {"a": 1}, "is": {"b": 1}, "ending": "ok"})), "needs `each`"),
        ("/read", rule(json!({"exit": "zero", "text": ["a"]})), "no members"),
        ("/read", rule(json!({"starts": "x", "text": ["a"]})), "only the path"),
        ("/read", rule(json!({"when": {"a": 1}, "script": "rm"})), "unknown field"),
    ] {
        let mut broken = whole.clone();
        match broken.pointer_mut(path) {
            Some(at) => *at = value.clone(),
            None => {
                let (parent, name) = path.rsplit_once('/').unwrap();
                broken.pointer_mut(parent).unwrap()[name] = value.clone();
            }
        }
        let why = Agent::parse(broken.to_string().as_bytes())
            .err()
            .unwrap_or_else(|| panic!("{path} {value} was taken"));
        assert!(why.contains(words), "{path} {value}: {why}");
    }
    for bytes in [&b""[..], b"[]", b"\xff", b"{\"name\":\"x\",\"name\":\"y\"}"] {
        assert!(Agent::parse(bytes).is_err());
    }
}
