//! Sealed mode's allowlists: the table of bodies, heads and queries (`data/body_cases.jsonl`), the recorded requests of the real
//! agents (`data/requests`, texts shortened), and mutations of what passes.
#![expect(clippy::disallowed_methods, reason = "tests")]

use sanduk::catalog::fields;
use sanduk::catalog::providers::{self, Protocol, Provider};
use sanduk::limits::BODY_BYTES;
use sanduk::relay::policy::{self, Rules};
use sanduk::relay::refuse::Refusal;
use sanduk::relay::start::Grants;
use sanduk::relay::{admit, inject};
use sanduk::secret::Secret;
use sanduk::wire::http;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Case {
    id: String,
    provider: String,
    path: String,
    headers: Vec<(String, String)>,
    query: Option<String>,
    body: Body,
    policy: Policy,
    expected: Expected,
}

/// Text, bytes in hex, or pieces that repeat.
#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Text(String),
    Hex { hex: String },
    Long { r#gen: Vec<Piece> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Once(String),
    Many { rep: String, times: usize },
}

#[derive(Deserialize)]
struct Policy {
    allow_models: Option<Vec<String>>,
    max_tokens_cap: Option<u64>,
    mode: String,
    allow_server_tools: bool,
}

#[derive(Deserialize)]
struct Expected {
    #[serde(default)]
    status: Value,
    /// Place -> new value; `+name`: a member that was added.
    forwarded: Option<Map<String, Value>>,
    #[serde(default)]
    headers_absent: Vec<String>,
    #[serde(default)]
    alt: Vec<Expected>,
}

impl Body {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Body::Text(text) => text.clone().into_bytes(),
            Body::Hex { hex } => {
                (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
            }
            Body::Long { r#gen } => r#gen
                .iter()
                .map(|piece| match piece {
                    Piece::Once(text) => text.clone(),
                    Piece::Many { rep, times } => rep.repeat(*times),
                })
                .collect::<String>()
                .into_bytes(),
        }
    }
}

impl Policy {
    fn grants(&self) -> Grants {
        Grants {
            sealed: self.mode == "sealed",
            allow_models: self.allow_models.clone().unwrap_or_default(),
            max_tokens_cap: self.max_tokens_cap,
            allow_server_tools: self.allow_server_tools,
            allow_fields: Vec::new(),
        }
    }
}

/// One request, as a client sends it.
struct Sent<'a> {
    provider: &'a Provider,
    rules: &'a Rules,
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a [(String, String)],
}

/// What went upstream.
#[derive(Debug)]
struct Passed {
    head: String,
    body: Vec<u8>,
    edits: usize,
}

/// The checks that `conn` makes of head and body, in its order.
fn send(sent: &Sent<'_>, body: &[u8], grants: &Grants) -> Result<Passed, Refusal> {
    if body.len() > BODY_BYTES {
        return Err(Refusal::new(413, "bounded by relay/receive.rs"));
    }
    let target = sent.query.map_or(sent.path.to_string(), |q| format!("{}?{q}", sent.path));
    let fields: String = sent.headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
    let text = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    let (head, _) = http::request(text.as_bytes())?.expect("a whole head");
    let route = sent.provider.route("POST", head.path).ok_or_else(|| Refusal::new(403, "no route"))?;
    admit::content(&head)?;
    admit::switches(sent.provider, grants, route, &head)?;
    let judged = policy::body(route.protocol, body, grants, sent.rules)?;
    let out = inject::Outgoing {
        method: "POST",
        target: head.target,
        fields: &head.fields,
        length: Some(body.len()),
    };
    let head = inject::head(&judged, sent.provider, "x", &Secret::new(b"KEY".to_vec()), &out, Vec::new())?;
    Ok(Passed {
        head: String::from_utf8(head.expose().to_vec()).unwrap(),
        body: policy::parts(body, &judged.edits).concat(),
        edits: judged.edits.len(),
    })
}

fn shipped(name: &str) -> (Provider, Rules) {
    let provider = providers::shipped(if name == "compat" { "openai-compat" } else { name }).unwrap();
    let rules = Rules::of(&provider).unwrap();
    (provider, rules)
}

fn cases() -> Vec<Case> {
    let text = include_str!("data/body_cases.jsonl");
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn every_case_of_the_table() {
    let cases = cases();
    assert!(cases.len() > 400, "the table is whole");
    let wrong: Vec<String> = cases.iter().filter_map(differs).collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn differs(case: &Case) -> Option<String> {
    let (provider, rules) = shipped(&case.provider);
    let sent = Sent {
        provider: &provider,
        rules: &rules,
        path: &case.path,
        query: case.query.as_deref(),
        headers: &case.headers,
    };
    let body = case.body.bytes();
    let got = send(&sent, &body, &case.policy.grants());
    if let Err(refusal) = &got {
        assert!(!refusal.why.contains("--"), "{}: the agent is told a flag: {}", case.id, refusal.why);
        assert!(refusal.why.len() < 1000, "{}: {}", case.id, refusal.why);
        let plain = |c: char| !c.is_control() && c != '\u{feff}';
        assert!(refusal.why.chars().all(plain), "{}: {}", case.id, refusal.why);
    }
    let fits = |expected: &Expected| meets(expected, &body, &got);
    let ok = fits(&case.expected) || case.expected.alt.iter().any(fits);
    let says = match &got {
        Ok(passed) => format!("passed, {} edits", passed.edits),
        Err(refusal) => format!("{} {}", refusal.status, refusal.why),
    };
    (!ok).then(|| format!("{}: {says}; want {} {:?}", case.id, case.expected.status, case.expected.forwarded))
}

fn meets(expected: &Expected, body: &[u8], got: &Result<Passed, Refusal>) -> bool {
    let passed = match (got, &expected.status) {
        (Ok(passed), Value::Number(_) | Value::Null) => passed,
        (Err(refusal), Value::Array(statuses)) => return statuses.iter().any(|s| *s == refusal.status),
        _ => return false,
    };
    let absent = |name: &String| !passed.head.to_ascii_lowercase().contains(&format!("\r\n{name}:"));
    if !expected.headers_absent.iter().all(absent) {
        return false;
    }
    let Some(edits) = &expected.forwarded else {
        return passed.body == body;
    };
    // A number that the test's own reader cannot hold is one that is replaced (T015).
    let readable = String::from_utf8(body.to_vec()).unwrap().replace(&"0".repeat(100), "");
    let mut want: Value = serde_json::from_str(&readable).unwrap();
    for (place, value) in edits {
        match place.strip_prefix('+') {
            Some(name) => assert!(want.as_object_mut().unwrap().insert(name.into(), value.clone()).is_none()),
            None => *at(&mut want, place) = value.clone(),
        }
    }
    let added = edits.keys().filter(|k| k.starts_with('+')).count();
    let places = edits.len() - added + usize::from(added > 0);
    // The pieces between the edits are the body's own slices (`policy::parts`).
    passed.edits == places && serde_json::from_slice::<Value>(&passed.body).unwrap() == want
}

/// `tools[0].max_tokens`.
fn at<'v>(value: &'v mut Value, place: &str) -> &'v mut Value {
    let mut value = value;
    for step in place.replace('[', ".").replace(']', "").split('.') {
        value = match step.parse::<usize>() {
            Ok(index) => value.get_mut(index).unwrap(),
            Err(_) => value.get_mut(step).unwrap(),
        };
    }
    value
}

#[derive(Deserialize)]
struct Recorded {
    recording: String,
    provider: String,
    path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
    body: Value,
}

fn recordings() -> Vec<Recorded> {
    let files = [
        include_str!("data/requests/claude.jsonl"),
        include_str!("data/requests/codex.jsonl"),
        include_str!("data/requests/hax.jsonl"),
        include_str!("data/requests/hermes.jsonl"),
        include_str!("data/requests/opencode.jsonl"),
        include_str!("data/requests/pi.jsonl"),
        include_str!("data/requests/prime.jsonl"),
    ];
    files.iter().flat_map(|text| text.lines()).map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn sealed() -> Grants {
    Grants { sealed: true, max_tokens_cap: Some(4096), ..Grants::default() }
}

/// Each way in which a real agent's requests differ. What holds a hosted `web_search` is refused, and passes with the flag.
#[test]
fn recorded_requests_of_real_agents() {
    let hosted = ["codex-cutonce", "codex-len", "codex-text", "codex-tool"];
    let mut refused = 0;
    for recorded in recordings() {
        let (provider, rules) = shipped(&recorded.provider);
        let sent = Sent {
            provider: &provider,
            rules: &rules,
            path: &recorded.path,
            query: recorded.query.as_deref(),
            headers: &recorded.headers,
        };
        let body = serde_json::to_vec(&recorded.body).unwrap();
        let holds =
            recorded.body["tools"].as_array().is_some_and(|t| t.iter().any(|t| t["type"] == "web_search"));
        let got = send(&sent, &body, &sealed()).map(|_| ()).map_err(|r| (r.why, r.remedy.to_string()));
        if holds {
            assert!(hosted.contains(&recorded.recording.as_str()), "{}", recorded.recording);
            let why = "tools[].type \"web_search\" is not allowed here: the provider would run it";
            assert_eq!(got, Err((why.to_string(), "--allow-server-tools".to_string())));
            let lifted = Grants { allow_server_tools: true, ..sealed() };
            assert!(send(&sent, &body, &lifted).is_ok(), "{}", recorded.recording);
            refused += 1;
        } else {
            assert_eq!(got, Ok(()), "{}", recorded.recording);
        }
    }
    assert_eq!(refused, 2);
}

/// Members in which nothing is judged.
const OPAQUE: [&str; 8] = [
    "input",
    "input_schema",
    "parameters",
    "schema",
    "arguments",
    "input_examples",
    "reasoning_details",
    "action",
];

/// Pointers to all judged values of a body.
fn judged(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_string());
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                // The input of a Responses call is its list of items.
                let opaque = OPAQUE.contains(&name.as_str()) && !at.is_empty();
                if !opaque {
                    judged(inner, &format!("{at}/{name}"), out);
                }
            }
        }
        Value::Array(items) => {
            for (n, inner) in items.iter().enumerate() {
                judged(inner, &format!("{at}/{n}"), out);
            }
        }
        _ => {}
    }
}

/// Every judged object of every body that passes gets an unknown member, every `type` an unknown one, every scalar becomes an
/// object, every list gets a list: all refused.
#[test]
fn mutations_of_good_bodies() {
    let mut tried = [0usize; 4];
    let grants = Grants { sealed: true, ..Grants::default() };
    for (provider, path, body) in good_bodies() {
        let (provider, rules) = shipped(&provider);
        let sent = Sent { provider: &provider, rules: &rules, path: &path, query: None, headers: &[] };
        let passes = |body: &Value| send(&sent, &serde_json::to_vec(body).unwrap(), &grants).is_ok();
        assert!(passes(&body), "{path} {body}");
        let mut places = Vec::new();
        judged(&body, "", &mut places);
        for place in places {
            let mut try_with = |kind: usize, change: &dyn Fn(&mut Value)| {
                let mut mutant = body.clone();
                change(mutant.pointer_mut(&place).unwrap());
                tried[kind] += 1;
                assert!(!passes(&mutant), "{path} {kind} at {place}: {mutant}");
            };
            match body.pointer(&place).unwrap() {
                Value::Object(members) => {
                    try_with(0, &|v| v["zz_20991231"] = json!({"url": "http://evil.test"}));
                    if members.contains_key("type") && !place.ends_with("/client_metadata") {
                        try_with(1, &|v| v["type"] = "zz_20991231".into());
                    }
                }
                Value::Array(_) => {
                    try_with(2, &|v| v.as_array_mut().unwrap().push(json!([{"type": "text"}])))
                }
                _ => try_with(3, &|v| *v = json!({"zz_20991231": 1})),
            }
        }
    }
    assert!(tried.iter().all(|n| *n > 300), "{tried:?}");
}

/// Bodies that pass as they are: of the table, of the recordings, and of `data/full_bodies.jsonl`, which has what may
/// pass by the tables.
fn good_bodies() -> Vec<(String, String, Value)> {
    let mut good = Vec::new();
    for case in cases() {
        let plain =
            case.expected.status == 200 && case.policy.mode == "sealed" && !case.policy.allow_server_tools;
        let Body::Text(text) = &case.body else { continue };
        // Escapes and odd numbers are the table's own business.
        if plain && case.headers.is_empty() && !case.id.starts_with('J') && !case.id.starts_with("T0") {
            good.push((case.provider, case.path, serde_json::from_str(text).unwrap()));
        }
    }
    for line in include_str!("data/full_bodies.jsonl").lines() {
        let full: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| full[name].as_str().unwrap().to_string();
        good.push((text("provider"), text("path"), full["body"].clone()));
    }
    for recorded in recordings() {
        if !recorded.body.to_string().contains("external_web_access") {
            good.push((recorded.provider, recorded.path, recorded.body));
        }
    }
    good
}

/// Names that the documentation of the providers and of servers like theirs has, whatever their value.
#[test]
fn top_level_names_that_are_refused() {
    let tables: [(&str, &str, &str); 6] = [
        (
            "anthropic",
            "/v1/messages",
            "fallbacks fallback_credit_token speed inference_geo billing_policy thread compaction diagnostics container mcp_servers user_profile_id output_format betas anthropic_beta max_tokens_to_sample anthropic_version",
        ),
        (
            "anthropic",
            "/v1/messages/count_tokens",
            "fallbacks fallback_credit_token speed inference_geo billing_policy thread compaction diagnostics container mcp_servers user_profile_id output_format betas anthropic_beta max_tokens_to_sample anthropic_version max_tokens metadata",
        ),
        (
            "openai",
            "/v1/responses",
            "background_options previous_response_id conversation prompt context_management prompt_cache_options prompt_cache_retention safety_identifier user metadata moderation access_programs image max_tool_calls top_logprobs",
        ),
        (
            "openai",
            "/v1/chat/completions",
            "web_search_options prediction audio modalities functions function_call metadata moderation user safety_identifier prompt_cache_options prompt_cache_retention logit_bias logprobs top_logprobs best_of",
        ),
        (
            "openrouter",
            "/api/v1/chat/completions",
            "models fallbacks route preset provider plugins transforms prompt session_id trace debug deferred_tools stop_server_tools_when image_config safeguards cache_control web_search_options",
        ),
        (
            "compat",
            "/v1/chat/completions",
            "n_predict n_cmpl min_tokens ignore_eos thinking_token_budget use_beam_search prompt_logprobs priority stream_interval kv_transfer_params ec_transfer_params bootstrap_host custom_logit_processor logits_processors chat_template chat_template_kwargs documents mm_processor_kwargs media_io_kwargs vllm_xargs structured_outputs regex lora_path session_params input_ids return_hidden_states images_config ngram_corpus_id data_parallel_rank id_slot reasoning_control api_base user_config fallbacks model_list search_parameters enable_search compound_custom data_sources extra_body options bootstrap_port bootstrap_room ebnf stop_regex grammar json_schema lora session_id rid extra_key request_id cache_salt return_routed_experts return_prompt_text routed_dp_rank cache_prompt n_cache_reuse context_window_fallbacks mock_response guardrails tags num_retries litellm_metadata extra_headers search_settings include_domains",
        ),
    ];
    let grants = Grants { sealed: true, ..Grants::default() };
    for (name, path, fields) in tables {
        let (provider, rules) = shipped(name);
        let sent = Sent { provider: &provider, rules: &rules, path, query: None, headers: &[] };
        for field in fields.split(' ') {
            for value in ["null", "false", "1", "\"x\"", "[]", "{}", "{\"type\":\"x\"}"] {
                let body = format!(r#"{{"model":"m","{field}":{value}}}"#);
                let got = send(&sent, body.as_bytes(), &grants).map(|_| ()).map_err(|r| r.status);
                assert_eq!(got, Err(403), "{name} {body}");
            }
        }
    }
}

/// What is refused in sealed mode passes in key-safe mode, where there is no list; models and caps hold in both.
#[test]
fn key_safe_has_no_list() {
    let (provider, rules) = shipped("anthropic");
    let headers = [("anthropic-beta".to_string(), "zz-2099-12-31".to_string())];
    let sent = Sent {
        provider: &provider,
        rules: &rules,
        path: "/v1/messages",
        query: Some("zz=1"),
        headers: &headers,
    };
    let body =
        br#"{"model":"m","max_tokens":5,"zz":1,"tools":[{"type":"web_search_20991231"}],"messages":[]}"#;
    let open = Grants { allow_models: vec!["m".into()], ..Grants::default() };
    assert_eq!(send(&sent, body, &open).map(|p| p.body).map_err(|r| r.why), Ok(body.to_vec()));
    assert_eq!(
        send(&sent, body, &Grants { sealed: true, ..open }).map(|_| ()).map_err(|r| r.status),
        Err(403)
    );
}

/// The flag takes the place as the refusal names it; beside it the list holds.
#[test]
fn allow_field_lifts_what_it_names() {
    let (provider, rules) = shipped("anthropic");
    let sent =
        |query, headers| Sent { provider: &provider, rules: &rules, path: "/v1/messages", query, headers };
    let body = |more: &str| format!(r#"{{"model":"m","max_tokens":5,"messages":[],{more}}}"#);
    let headers: Vec<(String, String)> = vec![("anthropic-beta".into(), "effort-2025-11-24, zz-2099".into())];
    type Row<'a> = (Option<&'a str>, &'a [(String, String)], &'a str, &'a str, &'a str);
    let cases: &[Row<'_>] = &[
        (None, &[], r#""speed":"fast""#, "the field speed (a string) is not allowed here", "speed"),
        (
            None,
            &[],
            r#""container":{"id":["x"]}"#,
            "the field container (an object) is not allowed here",
            "container",
        ),
        (
            None,
            &[],
            r#""service_tier":"flex""#,
            "the value of service_tier (a string) is not allowed here",
            "service_tier",
        ),
        (
            None,
            &[],
            r#""system":[{"type":"text","text":"","citations":[{"a":1}]}]"#,
            "the value of system[].citations (a list) is not allowed here",
            "system[].citations",
        ),
        (
            None,
            &[],
            r#""tools":[{"zz":1,"type":"memory_20250818","a":{"b":[1]},"name":5}]"#,
            "the field tools[].zz (a number) is not allowed here",
            "tools[].type=memory_20250818",
        ),
        (
            None,
            &[],
            r#""tools":[{"type":"memory_20250818","a":{"b":[1]},"name":5}]"#,
            "tools[].type \"memory_20250818\" is not allowed here",
            "tools[].type=memory_20250818",
        ),
        (
            None,
            &[],
            r#""thinking":{"budget_tokens":5,"type":"disabled"}"#,
            "the field thinking.budget_tokens is not allowed here with the type \"disabled\"",
            "thinking.budget_tokens",
        ),
        (Some("zz=1"), &[], r#""top_k":1"#, "the query \"zz=1\" is not allowed here", "?zz=1"),
        (
            None,
            &headers,
            r#""top_k":1"#,
            "anthropic-beta \"zz-2099\" is not allowed here",
            "anthropic-beta=zz-2099",
        ),
    ];
    for (query, headers, more, why, name) in cases {
        let send = |more: &str, fields: &[&str]| {
            let allow_fields = fields.iter().map(ToString::to_string).collect();
            let grants = Grants { sealed: true, allow_fields, ..Grants::default() };
            send(&sent(*query, headers), body(more).as_bytes(), &grants)
        };
        let refused = send(more, &["other"]).map(|_| ()).unwrap_err();
        assert_eq!((refused.status, refused.why.as_str()), (403, *why), "{more}");
        if !more.contains("zz") {
            assert_eq!(refused.remedy, format!("--allow-field '{name}'"), "{more}");
        }
        assert!(send(more, &[name]).is_ok(), "{more}");
        let beside = send(&format!("{more},\"zz_beside\":1"), &[name]).map(|_| ()).unwrap_err();
        assert_eq!(beside.why, "the field zz_beside (a number) is not allowed here", "{more}");
    }
    // A kind that is allowed says nothing of another, wherever its members stand.
    let grants = Grants {
        sealed: true,
        allow_fields: vec!["tools[].type=memory_20250818".into()],
        ..Grants::default()
    };
    for (tool, passes) in [
        (r#"{"zz":{"a":[1]},"type":"memory_20250818"}"#, true),
        (r#"{"zz":{"a":[1]},"type":"custom","name":"x"}"#, false),
        (r#"{"zz":1,"name":"x","input_schema":{}}"#, false),
        (r#"{"type":"custom","name":"x","zz":1}"#, false),
    ] {
        let body = body(&format!("\"tools\":[{tool}]"));
        assert_eq!(send(&sent(None, &[]), body.as_bytes(), &grants).is_ok(), passes, "{tool}");
    }
}

/// A name that the box made up is shown escaped and cut, and never goes into the command that the operator is told to type.
#[test]
fn hostile_names_in_refusals() {
    let (provider, rules) = shipped("openai");
    let sent =
        Sent { provider: &provider, rules: &rules, path: "/v1/chat/completions", query: None, headers: &[] };
    for name in ["'; rm -rf / #", "\\u001b[2J", "\\u202e", &"x".repeat(100_000), ""] {
        let body = format!(r#"{{"model":"m","messages":[],"{name}":1}}"#);
        let refused = send(&sent, body.as_bytes(), &sealed()).map(|_| ()).unwrap_err();
        assert_eq!(refused.status, 403);
        assert!(refused.why.len() < 1000 && !refused.why.contains(['\u{1b}', '\u{202e}']), "{}", refused.why);
        assert!(refused.remedy == "--allow-field" || name.is_empty(), "{}", refused.remedy);
    }
}

/// One value of a field passes, its neighbours do not; without a cap too, which has rules of its own for some.
#[test]
fn values_are_listed() {
    let chat = ("openai", "/v1/chat/completions", r#"{"model":"m","messages":[],@}"#);
    let responses = ("openai", "/v1/responses", r#"{"model":"m","input":"x",@}"#);
    let messages = ("anthropic", "/v1/messages", r#"{"model":"m","max_tokens":5,"messages":[],@}"#);
    let router = ("openrouter", "/api/v1/chat/completions", r#"{"model":"m","messages":[],@}"#);
    let cases = [
        (chat, "n", "1", &["2", "10", "1.0", "1e0", "-1", "0", "\"1\"", "true", "null"][..]),
        (chat, "store", "null", &["true", "0", "\"false\""]),
        (chat, "service_tier", "\"auto\"", &["\"Auto\"", "\"auto \"", "\"flex\"", "null", "[\"auto\"]"]),
        (responses, "background", "false", &["true", "null", "0"]),
        (responses, "store", "false", &["true", "null", "0"]),
        (
            responses,
            "include",
            "[\"reasoning.encrypted_content\"]",
            &["[\"x\"]", "\"reasoning.encrypted_content\"", "[null]"],
        ),
        (
            responses,
            "reasoning",
            "{\"mode\":\"standard\"}",
            &["{\"mode\":\"pro\"}", "{\"mode\":1}", "{\"max_tokens\":1}"],
        ),
        (
            messages,
            "cache_control",
            "{\"ttl\":\"1h\",\"type\":\"ephemeral\"}",
            &["{}", "{\"type\":\"ephemeral\",\"ttl\":\"12h\"}"],
        ),
        (
            messages,
            "thinking",
            "{\"type\":\"adaptive\"}",
            &["{\"type\":\"adaptive\",\"block_binding\":1}", "{}"],
        ),
        (messages, "output_config", "{\"effort\":\"max\"}", &["{\"task_budget\":{}}"]),
        (
            messages,
            "context_management",
            "{\"edits\":[]}",
            &["{\"edits\":[{\"type\":\"compact_20260112\"}]}"],
        ),
        (
            router,
            "usage",
            "{\"include\":true}",
            &["{\"include\":false}", "true", "{\"include\":true,\"x\":1}"],
        ),
    ];
    let grants = Grants { sealed: true, ..Grants::default() };
    for ((name, path, body), field, good, bad) in cases {
        let (provider, rules) = shipped(name);
        let sent = Sent { provider: &provider, rules: &rules, path, query: None, headers: &[] };
        let got = |value: &str| {
            let body = body.replace('@', &format!("\"{field}\":{value}"));
            send(&sent, body.as_bytes(), &grants).map(|_| ()).map_err(|r| r.status)
        };
        assert_eq!(got(good), Ok(()), "{field}");
        for value in bad {
            assert_eq!(got(value), Err(403), "{field} {value}");
        }
    }
}

/// Pictures, files and sounds stand in the request themselves.
#[test]
fn data_is_in_place() {
    let chat = |part: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
    let item = |part: &str| format!(r#"{{"model":"m","input":[{{"role":"user","content":[{part}]}}]}}"#);
    let image = |url: &str| chat(&format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#));
    let input = |url: &str| item(&format!(r#"{{"type":"input_image","image_url":"{url}"}}"#));
    let sound = |data: &str| chat(&format!(r#"{{"type":"input_audio","input_audio":{{"data":"{data}"}}}}"#));
    let file = |data: &str| item(&format!(r#"{{"type":"input_file","file_data":"{data}"}}"#));
    let (png, pdf) = ("data:image/png;base64,AAAA", "data:application/pdf;base64,AAAA");
    // A picture of a kind that can refer to others is none.
    let svg = "data:image/svg+xml;base64,AAAA";
    let cases = [
        (image(png), true),
        (image(svg), false),
        (image(pdf), false),
        (image("AAAA"), false),
        (image("data:image\\/png;base64,AA\\nAA"), true),
        (input(png), true),
        (input(svg), false),
        (input("http://x/data:image/png;base64,AAAA"), false),
        (sound("AAAA"), true),
        (sound("/etc/passwd"), false),
        (sound("file:///a"), false),
        (file("AAAA"), true),
        (file(pdf), true),
        (file("http://x/a.pdf"), false),
    ];
    let (provider, rules) = shipped("openai");
    for (body, passes) in cases {
        let path = if body.contains("messages") { "/v1/chat/completions" } else { "/v1/responses" };
        let sent = Sent { provider: &provider, rules: &rules, path, query: None, headers: &[] };
        assert_eq!(send(&sent, body.as_bytes(), &sealed()).is_ok(), passes, "{body}");
    }
}

/// A schema may refer to itself only; a property that is called `$ref` refers to nothing.
#[test]
fn schemas_refer_to_nothing_outside() {
    let zones = [
        (
            "anthropic",
            "/v1/messages",
            r#"{"model":"m","max_tokens":5,"tools":[{"name":"x","input_schema":@}]}"#,
        ),
        (
            "anthropic",
            "/v1/messages",
            r#"{"model":"m","max_tokens":5,"output_config":{"format":{"schema":@,"type":"json_schema"}}}"#,
        ),
        (
            "openai",
            "/v1/responses",
            r#"{"model":"m","input":"x","tools":[{"type":"function","name":"x","parameters":@}]}"#,
        ),
        (
            "openai",
            "/v1/responses",
            r#"{"model":"m","input":"x","text":{"format":{"type":"json_schema","schema":@}}}"#,
        ),
        (
            "openai",
            "/v1/chat/completions",
            r#"{"model":"m","tools":[{"type":"function","function":{"name":"x","parameters":@}}]}"#,
        ),
    ];
    let good = [
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}},"$schema":"https://json-schema.org/draft/2020-12/schema"}"##,
        r##"{"properties":{"$ref":{"type":"string","default":"http://x"}}}"##,
        r##"{"allOf":[{"$ref":"\u0023/a"},"http://x"]}"##,
    ];
    let bad = [
        r##"{"$ref":"http://x/s.json"}"##,
        r##"{"properties":{"a":[{"\u0024ref":"file:///etc/passwd#"}]}}"##,
        r##"{"$defs":{"a":{"$dynamicRef":"x#"}}}"##,
        r##"{"$ref":""}"##,
    ];
    for (name, path, zone) in zones {
        let (provider, rules) = shipped(name);
        let sent = Sent { provider: &provider, rules: &rules, path, query: None, headers: &[] };
        let passes = |schema: &str| send(&sent, zone.replace('@', schema).as_bytes(), &sealed()).is_ok();
        assert!(good.iter().all(|s| passes(s)), "{zone}");
        assert!(!bad.iter().any(|s| passes(s)), "{zone}");
    }
}

/// The conversation after a search: with the flag what came back may be sent back, without it nothing of it.
#[test]
fn answers_of_server_tools() {
    let found = json!([{"type": "web_search_result", "url": "https://x.test", "title": "t", "encrypted_content": "e", "page_age": null}]);
    let fetched = json!({"type": "web_fetch_result", "url": "https://x.test", "retrieved_at": "t", "content": {
        "type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d: e"}, "title": "t"}});
    let cited = json!([{"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "i", "cited_text": "c"}]);
    let blocks = [
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": found}),
        json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": fetched}),
        json!({"type": "text", "text": "x", "citations": cited}),
    ];
    let (provider, rules) = shipped("anthropic");
    let sent = Sent { provider: &provider, rules: &rules, path: "/v1/messages", query: None, headers: &[] };
    let (sealed, lifted) = (sealed(), Grants { allow_server_tools: true, ..sealed() });
    for block in blocks {
        let body = |block: &Value| {
            json!({"model": "m", "max_tokens": 5, "messages": [{"role": "assistant", "content": [block]}]})
                .to_string()
        };
        let got = |grants: &Grants, block: &Value| {
            send(&sent, body(block).as_bytes(), grants).map(|_| ()).map_err(|r| r.remedy.to_string())
        };
        assert_eq!(got(&lifted, &block), Ok(()), "{block}");
        assert_eq!(got(&sealed, &block), Err("--allow-server-tools".into()), "{block}");
        let odd: Value = serde_json::from_str(&block.to_string().replace("\"url\"", "\"zz\"")).unwrap();
        assert!(odd == block || got(&lifted, &odd).is_err(), "{odd}");
    }
    let ran = json!({"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"type": "x"}});
    let body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "assistant", "content": [ran]}]})
        .to_string();
    assert!(send(&sent, body.as_bytes(), &lifted).is_err());
}

/// The cap goes in under the provider's own name.
#[test]
fn a_missing_cap_has_the_providers_name() {
    let names = [
        ("openai", "/v1/chat/completions", "max_completion_tokens"),
        ("compat", "/v1/chat/completions", "max_tokens"),
        ("openrouter", "/api/v1/chat/completions", "max_tokens"),
    ];
    for (name, path, cap) in names {
        let (provider, rules) = shipped(name);
        let sent = Sent { provider: &provider, rules: &rules, path, query: None, headers: &[] };
        let got =
            send(&sent, br#"{"model":"m","messages":[]}"#, &sealed()).map(|p| p.body).map_err(|r| r.why);
        assert_eq!(got, Ok(format!(r#"{{"{cap}":4096,"model":"m","messages":[]}}"#).into_bytes()), "{name}");
    }
}

/// Server-side state is off where the client does not say so itself.
#[test]
fn store_is_off() {
    let (provider, rules) = shipped("openai");
    let sent = Sent { provider: &provider, rules: &rules, path: "/v1/responses", query: None, headers: &[] };
    let grants = Grants { sealed: true, ..Grants::default() };
    let got =
        |body: &str| send(&sent, body.as_bytes(), &grants).map(|p| String::from_utf8(p.body).unwrap()).ok();
    assert_eq!(
        got(r#"{"model":"m","input":"x"}"#),
        Some(r#"{"store":false,"model":"m","input":"x"}"#.into())
    );
    assert_eq!(got("{}"), Some(r#"{"store":false}"#.into()));
    assert_eq!(got(r#"{"model":"m","input":"x","store":true}"#), None);
    assert_eq!(got(r#"{"model":"m","input":"x","store":null}"#), None);
}

/// A broken table is our own fault, found when a relay starts.
#[test]
fn broken_tables_are_found() {
    let table = |shapes: &str| format!(r#"{{"tops":{{"t":"a"}},"shapes":{{{shapes}}}}}"#);
    let read = |shapes: &str| fields::read(&table(shapes), "t", None).map(|_| ());
    assert_eq!(read(r#""a":{"members":{"x":"string | [{b}]"}},"b":{"rest":"string"}"#), Ok(()));
    for (shapes, why) in [
        (r#""a":{"members":{"x":"strung"}}"#, "a: x: no rule `strung`"),
        (r#""a":{"members":{"x":"{c}"}}"#, "a: x: no shape c"),
        (r#""a":{"members":{"x":"[string"}}"#, "a: x: the brackets of `[string`"),
        (r#""a":{"members":{"x":"any","x!":"any"}}"#, "a: a member stands twice"),
        (r#""a":{"members":{"x":"any","x":"any"}}"#, "a member name stands twice"),
        (r#""a":{"member":{}}"#, "unknown field `member`"),
        (r#""a":{},"b":{}"#, "no rule names the shape b"),
        (r#""a":{"by":"t","members":{"x":"any"},"kinds":{"k":[]}}"#, "a: no kind has x"),
        (r#""a":{"by":"t","kinds":{"k":["x"]}}"#, "a: no member x"),
        (r#""a":{"kinds":{"k":[]}}"#, "a: kinds without `by`"),
        (r#""a":{"insert":{"x":"false"}}"#, "a: no member x"),
    ] {
        let got = read(shapes).unwrap_err();
        assert!(got.contains(why), "{shapes}: {got}");
    }
    assert!(fields::read(&table(r#""a":{}"#), "u", None).is_err());
    for name in providers::names() {
        let provider = providers::shipped(name).unwrap();
        let protocols: Vec<Protocol> = fields::of(&provider).unwrap().iter().map(|(p, _)| *p).collect();
        let with_body = provider.routes.iter().filter(|r| r.method == "POST").count();
        assert_eq!(protocols.len(), with_body, "{name}");
    }
}
