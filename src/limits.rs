//! Every number that a peer or a file can hit, with its reason. `audit/limits.txt` is compared with this file.

use std::time::Duration;

/// Longest request or status line: real targets are under 200 bytes, 8 KiB is what other servers allow.
pub const LINE_BYTES: usize = 8 * 1024;
/// Longest single header field; Claude Code's longest beta list is under 1 KiB.
pub const FIELD_BYTES: usize = 16 * 1024;
/// Whole head, so that one connection's buffer is bounded.
pub const HEAD_BYTES: usize = 64 * 1024;
/// Bytes of a head that are read at once; recorded heads are under 4 KiB.
pub const HEAD_READ: usize = 8 * 1024;
/// Header fields in one head; real agents send under 40.
pub const FIELDS: usize = 128;
/// Trailer section of a chunked body; read and dropped.
pub const TRAILER_BYTES: usize = 8 * 1024;
/// Hex digits of a chunk size: sixteen hold any u64.
pub const CHUNK_DIGITS: usize = 16;
/// Bytes of one chunk extension; none are known to be sent.
pub const CHUNK_EXT_BYTES: usize = 1024;
/// Request body: the largest recorded agent request is 2 MiB; images need more.
pub const BODY_BYTES: usize = 64 * 1024 * 1024;
/// JSON nesting; real requests stay under 30.
pub const JSON_DEPTH: usize = 128;
/// Member names of all open objects together, kept to find duplicates; a large recorded request has under 100 at a time. Each costs 48
/// bytes, sorting included, beside the body that `BODY_TOTAL` counts: 3 MiB for one body, 400 MiB over all `CONNECTIONS`.
pub const JSON_NAMES: usize = 65_536;
/// Judged places in one body (the elements of `models` and `tools` count); real requests have under 10.
pub const JUDGED_PLACES: usize = 4096;
/// Models with a price in one price file: more than any provider sells, and they fit the relay's order.
pub const PRICED_MODELS: usize = 256;
/// Longest wait of a call for its turn, where a cap lets one pass at a time: as long as agents wait for an answer.
pub const TURN_WAIT: Duration = Duration::from_secs(600);
/// How often a call that waits for its turn looks whether its client is still there.
pub const TURN_LOOK: Duration = Duration::from_millis(200);
/// Tokens of its own that a provider may add to a call: what explains tool use and output formats to the model is below 1,000 today.
pub const CALL_TOKENS: u64 = 4096;
/// The same for each tool of a type that the provider defines: the largest known, a text editor, has 700.
pub const TOOL_TOKENS: u64 = 1024;
/// Characters of the model's name that a record or a message shows.
pub const MODEL_CHARS: usize = 200;
/// Open files a run asks for: four for each of `CONNECTIONS` (the client, and openssl's three pipes) and as many again.
pub const FILES_WANTED: u64 = 1024;
/// Below this a run does not start: its pipes, the keeper's and a few connections have to fit.
pub const FILES_LEAST: u64 = 64;
/// Connections one relay serves at a time; an agent uses under 10.
pub const CONNECTIONS: usize = 128;
/// Time for a whole request head once its first byte came, and for the first byte of a new connection.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// A kept-alive client connection with no request.
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
/// No byte from the provider for so long ends the call; thinking models stay silent for minutes.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(600);
/// A whole head of the provider's once its first byte came: it comes in one piece, or a lost packet later.
pub const UPSTREAM_HEAD_TIME: Duration = Duration::from_secs(30);
/// No byte taken by the client for so long ends the call.
pub const CLIENT_STALL: Duration = Duration::from_secs(120);
/// TCP connect, and the whole TLS handshake.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// An upstream connection that was idle for so long is closed: well before servers do, so that no request meets a closing one.
pub const POOL_IDLE: Duration = Duration::from_secs(30);
/// So long after a call one verified TLS connection is kept ready for the next: an agent that calls at all calls again soon.
pub const SPARE_TIME: Duration = Duration::from_secs(30);
/// An overloaded provider is asked again for so long where `--retry-for` does not say.
pub const RETRY_FOR: Duration = Duration::from_secs(60);
/// Longest `--retry-for`: clients give up on a call before.
pub const RETRY_FOR_MOST: Duration = Duration::from_secs(3600);
/// Wait before the second try, where the provider names none; doubled each time.
pub const RETRY_FIRST: Duration = Duration::from_millis(500);
/// Longest wait between two tries that the provider did not ask for.
pub const RETRY_MOST: Duration = Duration::from_secs(8);
/// How often a waiting call looks whether the run is over.
pub const RETRY_LOOK: Duration = Duration::from_millis(250);
/// Body of an overload's answer that is read to its end so that its connection may serve the next try; they are under 1 KiB.
pub const RETRY_DROP_BYTES: u64 = 64 * 1024;
/// Copy buffer of a connection, one each way.
pub const COPY_BYTES: usize = 64 * 1024;
/// A fifo or descriptor named as a key, a task or a configuration is waited for so long between two pieces: a password manager may
/// ask a person first.
pub const NAMED_TIME: Duration = Duration::from_secs(60);
/// `user:password` for a proxy.
pub const PROXY_AUTH_BYTES: usize = 1024;
/// Bytes of a provider key.
pub const KEY_BYTES: usize = 8 * 1024;
/// Bytes of a `--secret-env` value, least: shorter ones stand in innocent texts, and each hit ends a run.
pub const SECRET_LEAST: usize = 16;
/// Bytes of all `--secret-env` values of a run: with token and key they go through one pipe, which holds 64 KiB.
pub const SECRETS_BYTES: usize = 32 * 1024;
/// Bytes in that pipe.
pub const SECRETS_PIPE: usize = 60 * 1024;
/// How often the escapes of a request are decoded to look for secrets: tool arguments are JSON in a string of JSON.
pub const SPELLINGS: usize = 3;
/// Bytes of an openssl child's standard error that are read for its verdict; a handshake prints under 1 KiB.
pub const TLS_WORDS: usize = 64 * 1024;
/// After a TLS stream's end the child has so long to say, by its exit code, whether the end was clean (it needs 1 ms).
pub const TLS_END_TIME: Duration = Duration::from_secs(2);
/// A retired openssl child gets so long to close its connection before it is killed (an idle one needs 1 ms).
pub const TLS_RETIRE_TIME: Duration = Duration::from_secs(1);
/// Pipe buffers to and from openssl: up to a third more throughput than with the default of 64 KiB on an idle machine, nothing on a
/// busy one. Two for each of `CONNECTIONS` are the 64 MiB that Linux gives an ordinary user (pipe(7), pipe-user-pages-soft).
pub const TLS_PIPE_BYTES: usize = 256 * 1024;
/// A database lock held by another process is waited for so long; our transactions last milliseconds.
pub const DB_BUSY_TIME: Duration = Duration::from_secs(10);
/// Head of a request to the control server: ours is under 200 bytes.
pub const CONTROL_HEAD_BYTES: usize = 8 * 1024;
/// Body of `POST /start`: a task has no limit of its own, and 64 MiB is more than any model reads; it is held in memory twice.
pub const START_BYTES: u64 = 64 * 1024 * 1024;
/// Control connections of the host that wait for one of the threads below; a host has one or two open.
pub const CONTROL_HOST_QUEUE: usize = 16;
/// Threads that answer the host; made before the agent starts, so that a box at its process limit still answers.
pub const CONTROL_HOST_THREADS: usize = 4;
/// Control connections of in-box peers that wait for one of the threads below; one more is closed at once.
pub const CONTROL_BOX_QUEUE: usize = 4;
/// Threads that answer in-box peers: never those of the host.
pub const CONTROL_BOX_THREADS: usize = 2;
/// Whole time for a control request's head, and for an in-box peer to take its answer.
pub const CONTROL_HEAD_TIME: Duration = Duration::from_secs(10);
/// Whole time for a control request's body: 64 MiB over a local socket take under a second.
pub const CONTROL_BODY_TIME: Duration = Duration::from_secs(60);
/// A kept-alive control connection with no request holds a thread, so it is closed soon.
pub const CONTROL_IDLE: Duration = Duration::from_secs(10);
/// Longest `wait` of `GET /status`; more is taken as this.
pub const STATUS_WAIT: Duration = Duration::from_secs(20);
/// Event text in one answer to `/status`; as JSON at most six times this (each byte a `\u00XX`), the rest comes with the next.
pub const STATUS_BYTES: usize = 1024 * 1024;
/// What an event costs in the store beside its text, so that empty lines are bounded too.
pub const EVENT_COST: usize = 128;
/// Text of one output event; a longer line goes on in the next.
pub const EVENT_LINE_BYTES: usize = 64 * 1024;
/// A box that nobody has given a `/start` ends itself after this.
pub const START_TIME: Duration = Duration::from_secs(60);
/// After the agent's exit, how long its output may stay open in other hands before all that is left in the box is killed.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Between SIGTERM and SIGKILL when a box is ended.
pub const TERM_TIME: Duration = Duration::from_secs(2);
/// Between two tries of the forwarder to reach a relay that is being started again.
pub const RELAY_RETRY: Duration = Duration::from_millis(50);
/// After the relay ended its side, how long a client that still sends is listened to, so that it can read the answer.
pub const FORWARD_LINGER: Duration = Duration::from_secs(2);
/// A task: fits a large specification; the whole of it is held in memory a few times.
pub const TASK_BYTES: u64 = 16 * 1024 * 1024;
/// A task for an agent that takes it as an argument: Linux allows 128 KiB for one (`MAX_ARG_STRLEN`).
pub const ARGV_TASK_BYTES: usize = 127 * 1024;
/// Uid and gid of a box whose work directory root asked us to make where only root owns the parent. Outside what distributions
/// give to people, services and subordinate ids.
pub const BOX_UID: u32 = 64_200;
/// Name of an agent, a provider: they stand in paths and messages.
pub const AGENT_NAME: usize = 32;
/// One argument or environment string of a program (`execve(2)`, MAX_ARG_STRLEN on Linux).
pub const ARG_BYTES: usize = 128 * 1024;
/// One line of an agent's output put together from its events; the longest recorded is under 1 MiB. A longer one is skipped.
pub const READ_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Members and items in such a line: each costs up to a kilobyte of memory once it is a tree.
pub const READ_ITEMS: usize = 200_000;
/// The answer kept of a run; a report belongs into a file.
pub const ANSWER_BYTES: usize = 1024 * 1024;
/// Argument of a tool call as it is shown.
pub const TOOL_ARGUMENT_BYTES: usize = 400;
/// Bodies held in memory over all connections of one relay, and the decoded copies that are searched: 128 connections with a whole body each would be 8 GiB.
pub const BODY_TOTAL: usize = 256 * 1024 * 1024;
/// A request body may take so long, plus its size at `BODY_RATE`.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// Slowest body in bytes a second that is waited for; a phone's uplink is faster.
pub const BODY_RATE: u64 = 50 * 1024;
/// Requests refused in one run before it ends: an agent stops after a few, a loop does not.
pub const REFUSALS: u64 = 1000;
/// Bytes read and dropped after a refusal, so that the client sees the answer and not a reset.
pub const REFUSED_DRAIN_BYTES: u64 = 8 * 1024 * 1024;
/// Time for the same.
pub const REFUSED_DRAIN_TIME: Duration = Duration::from_secs(2);
/// An answer whose client has left is read on for so long, so that its usage is known; a longer one is charged unread.
pub const ORPHAN_TIME: Duration = Duration::from_secs(120);
/// The same in bytes; the longest recorded answer is under 1 MiB.
pub const ORPHAN_BYTES: u64 = 64 * 1024 * 1024;
/// Interim (1xx) answers to one request; two are usual at most.
pub const INTERIM_ANSWERS: usize = 8;
/// Upstream connections kept for reuse: as many as `CONNECTIONS` can have in use at a time, or each burst would make some anew.
pub const POOL_LINKS: usize = 128;
/// The order on a role's standard input.
pub const ORDER_BYTES: usize = 256 * 1024;
/// A run token.
pub const TOKEN_BYTES: usize = 1024;
/// Longest `calls.jsonl`: look-ups and calls to a dead provider count against no cap, and each leaves lines. Then the run ends, and an old
/// log of that length must be moved away. What the calls under way still get lies within the 16 MiB to `LOG_READ_BYTES`.
pub const LOG_BYTES: u64 = 1008 * 1024 * 1024;
/// One line of `calls.jsonl`: the longest is a `start` with the whole policy, which comes in an order of `ORDER_BYTES`.
pub const LOG_LINE_BYTES: u64 = 1024 * 1024;
/// Of an answer so much is kept by `--log-bodies`: as much as a request may have.
pub const LOG_BODY_BYTES: u64 = 64 * 1024 * 1024;
/// Bodies kept by one relay, as they passed, and a block (4 KiB) for each; text takes about a tenth of it on the disk.
pub const LOG_BODIES_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Nesting of a record; ours have 2.
pub const LOG_DEPTH: usize = 32;
/// Characters of a method or a path that a log line or a message shows.
pub const SHOWN_CHARS: usize = 200;
/// Connections that may wait to be accepted: with 5 the kernel drops SYNs and clients stall for seconds.
pub const BACKLOG: i32 = 1024;
/// Stack of each thread but the first. Inflating an answer and parsing JSON at full depth need under 64 KiB each as shipped, but
/// 200 KiB in a debug build, and copy buffers may lie there too. Pages that are not touched cost nothing.
pub const STACK_BYTES: usize = 512 * 1024;
/// A worker thread without a connection for so long ends.
pub const WORKER_IDLE: Duration = Duration::from_secs(30);
/// Pause of the accept loop while descriptors or memory are short.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Where a kernel has no pidfd: how often a child is asked for.
pub const CHILD_POLL: Duration = Duration::from_millis(10);
/// Entries read from a directory in one go while a tree is removed or walked; bounds memory, not the tree.
pub const DIR_BATCH: usize = 1024;
/// An agent may read its task late; what ends it is the run's timeout, not this.
pub const TASK_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// A forwarded connection may be silent for so long in a write: relay and agent have their own, shorter limits.
pub const FORWARD_STALL: Duration = Duration::from_secs(24 * 3600);
/// Task of the built-in agent; more than any model takes.
pub const MINI_TASK_BYTES: u64 = 16 * 1024 * 1024;
/// Model calls of the built-in agent where `--max-turns` is not given.
pub const MINI_TURNS: u64 = 100;
/// Answers in a row that may end at the token cap before it gives up.
pub const MINI_UNFINISHED: u32 = 3;
/// Output tokens it asks for where the protocol wants a number: long enough for a file, taken by every current model.
pub const MINI_OUTPUT_TOKENS: u32 = 8192;
/// Tool calls in one answer.
pub const MINI_CALLS: usize = 64;
/// One answer of the model, framing apart.
pub const MINI_ANSWER_BYTES: u64 = 64 * 1024 * 1024;
/// Words of an error answer.
pub const MINI_ERROR_BYTES: u64 = 64 * 1024;
/// Asking again for one answer goes on for so long; the relay waits on its own before it lets an overload through.
pub const MINI_RETRY_TIME: Duration = Duration::from_secs(60);
/// Tries for one answer.
pub const MINI_TRIES: u32 = 5;
/// What of a tool's output goes to the model: half from its start, half from its end.
pub const MINI_OUTPUT_BYTES: usize = 16 * 1024;
/// A file that read, write and edit take.
pub const MINI_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// A command of the bash tool where it says nothing, and at most.
pub const MINI_BASH_TIME: Duration = Duration::from_secs(120);
/// See `MINI_BASH_TIME`.
pub const MINI_BASH_MOST: Duration = Duration::from_secs(600);
/// One event of an answer; some servers send a whole file's worth of arguments in one.
pub const MINI_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The question whether the key is good; it decides before a box exists, so a person waits for it.
pub const PREFLIGHT_TIME: Duration = Duration::from_secs(15);
/// Longest a note may wait for an asker that does not read; those behind it do not wait until it reads again.
pub const NOTE_TIME: Duration = Duration::from_secs(5);
/// The note that ends the run waits so long for an asker that was stopped: nothing is served behind it.
pub const LAST_NOTE_TIME: Duration = Duration::from_secs(24 * 3600);
/// Data of one server-sent event: `response.completed` repeats all output of a call, a few hundred KiB.
pub const SSE_EVENT_BYTES: usize = 8 * 1024 * 1024;
/// Bytes inflated from one gzip answer; a stream that long is no chat.
pub const INFLATED_BYTES: u64 = 64 * 1024 * 1024;
/// Inflated bytes for one received byte, beyond the first MiB; text reaches 20, deflate itself 1032.
pub const INFLATE_RATIO: u64 = 200;
/// Facts kept of one answer or event; a usage object has under 40 members, and six for each round of a long call.
pub const USAGE_FACTS: usize = 2048;
/// Elements of an array (choices, rounds) that are looked into.
pub const USAGE_ELEMENTS: usize = 256;
/// Longest name, string or number kept of an answer; longer ones report nothing.
pub const USAGE_TEXT_BYTES: usize = 256;
/// Levels of an answer that are looked into; the deepest known report is at 6.
pub const USAGE_DEPTH: usize = 10;
/// Responses in one stream that are told apart; one is normal, re-forwarding proxies send two.
pub const USAGE_ANSWERS: usize = 16;

// One run (`run/`, `engine/`).

/// REPORT.md; larger is refused, not cut, so that nobody reads half a report as a whole one.
pub const REPORT_BYTES: u64 = 64 * 1024 * 1024;
/// A run's record: under twenty short lines.
pub const RECORD_BYTES: u64 = 64 * 1024;
/// A receipt or stats file given to `audit verify`; ours have under 8 KiB.
pub const RECEIPT_BYTES: u64 = 1024 * 1024;
/// Refusals that differ and are explained one by one; an agent stops after a few.
pub const EXPLAINED: usize = 200;
/// Calls of a log that are in flight at once: `CONNECTIONS` of one relay, and room for one that serves more.
pub const LOG_IN_FLIGHT: usize = 4096;
/// A `calls.jsonl` that `audit` reads: `LOG_BYTES` and what may follow. A day of calls is under 10 MiB.
pub const LOG_READ_BYTES: u64 = 1024 * 1024 * 1024;
/// Body of one answer of the control server: `STATUS_BYTES` of text, each byte written as `\u00XX`, and room for the rest.
pub const CONTROL_BODY_BYTES: u64 = 16 * 1024 * 1024;
/// One control call from connect to last byte, the time it was asked to wait not counted.
pub const CONTROL_TIME: Duration = Duration::from_secs(15);
/// How long `GET /status` is asked to wait for an event: well under `GRACE`.
pub const LONG_POLL: Duration = Duration::from_secs(10);
/// Control calls that fail in a row before the run ends: one may be a hiccup, three are not.
pub const CONTROL_FAILURES: u32 = 3;
/// From the start of the engine to the answer to `POST /start`.
pub const BOX_START: Duration = Duration::from_secs(60);
/// A box whose host has not called for so long ends itself.
pub const GRACE: Duration = Duration::from_secs(60);
/// Events a box keeps before it stops reading its agent.
pub const EVENT_BYTES: usize = 4 * 1024 * 1024;
/// The last words of an engine or a relay that are kept for the error line.
pub const LAST_WORDS: usize = 4 * 1024;
/// From the start of the relay to `Ready`: confinement and the key preflight with its handshake.
pub const RELAY_START: Duration = Duration::from_secs(45);
/// A relay told to end: what it still drains and records.
pub const RELAY_END: Duration = Duration::from_secs(3);
/// The keeper's whole teardown; longer, and the record stays for the sweep.
pub const TEARDOWN: Duration = Duration::from_secs(60);
/// One call of docker's command line: 20 to 200 ms each, seconds on a loaded host; a daemon that hangs answers none.
pub const ENGINE_CALL: Duration = Duration::from_secs(30);
/// A container asked for by a command line that was killed has come into being after so long, or never will.
pub const ENGINE_SETTLES: Duration = Duration::from_secs(3);
/// How often the keeper looks whether `docker run -d` has ended.
pub const ENGINE_LOOK: Duration = Duration::from_millis(20);
/// An answer of docker's command line: a listing of some thousand containers.
pub const ENGINE_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Docker's `config.json`, read for the current context.
pub const DOCKER_CONFIG_BYTES: u64 = 1024 * 1024;
/// Memory of a box where `--memory` does not say: what Claude Code with a build beside it takes.
pub const BOX_MEMORY: u64 = 4 * 1024 * 1024 * 1024;
/// Processors of a box in thousandths where `--cpus` does not say; never more than the host has.
pub const BOX_CPUS: u64 = 4000;
/// A standard error that takes nothing for so long (a paused terminal, a pipe nobody reads) loses lines: `--timeout` and signals
/// must not wait for it.
pub const SHOW_STALL: Duration = Duration::from_secs(5);
/// Things that happened and wait for the one who follows a run; then those who tell them wait too, and with them the box.
pub const NEWS: usize = 32;
/// How often the keeper looks at its children while its asker is silent.
pub const KEEPER_LOOK: Duration = Duration::from_millis(100);
/// Entries of the workspace looked at for set-id bits after the run.
pub const SET_ID_ENTRIES: usize = 500_000;
/// Where the forwarder listens in the box; the box has its own loopback, so it is always free.
pub const FORWARD_PORT: u16 = 8787;
/// `/tmp` in the box, in memory.
pub const BOX_TMP_BYTES: u64 = 1024 * 1024 * 1024;
/// The agent's home directory in the box, in memory.
pub const BOX_HOME_BYTES: u64 = 1024 * 1024 * 1024;
/// `/dev/shm` in the box, and each masked directory.
pub const BOX_SMALL_BYTES: u64 = 64 * 1024 * 1024;
/// Processes and threads in the box: a parallel build fits, a fork bomb does not.
pub const BOX_PROCESSES: u64 = 1024;
/// Open files of one process in the box.
pub const BOX_FILES: u64 = 4096;
/// Size of one file written in the box.
pub const BOX_FILE_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// First uid for relays when we are root; each takes its own from here on. systemd's table of uids lists the range up to
/// 2147483647 as unused.
pub const RELAY_UIDS: u32 = 1_879_048_192;
/// The conversation it sends, as JSON: about 100,000 tokens, half of what the smaller models take.
pub const MINI_HISTORY_BYTES: usize = 400 * 1024;
/// A TOML file: one is written by hand, and a task in it is text.
pub const TOML_BYTES: usize = 1024 * 1024;
/// Nesting of TOML tables and arrays; what a person writes stays under 5.
pub const TOML_DEPTH: usize = 16;
/// A connection keeps the memory of its last body up to this, so that the next one need not be given by the kernel again.
pub const BODY_KEPT: usize = 512 * 1024;
/// A Containerfile; ours have under 4 KiB.
pub const CONTAINERFILE_BYTES: u64 = 256 * 1024;
/// The host's certificates, copied for a build; Debian's are 220 KiB.
pub const CA_BYTES: u64 = 4 * 1024 * 1024;
/// A whole build: on a slow line the largest package takes minutes.
pub const BUILD_TIME: Duration = Duration::from_secs(3600);
/// A line of a build's output is shown in pieces from this length on.
pub const BUILD_LINE_BYTES: usize = 8 * 1024;

// `sanduk attest` and the probe in its box.

/// The probe's task and its report: some hundred probes of 200 bytes.
pub const PROBE_BYTES: usize = 1024 * 1024;
/// An address that answers does so in milliseconds; one that drops what comes is given up after this.
pub const PROBE_WAIT: Duration = Duration::from_secs(1);
/// An answer of the relay, whose scripted provider answers at once.
pub const PROBE_ANSWER: Duration = Duration::from_secs(15);
/// A file of `/proc` that the probe reads: the largest, a list of mappings, has 200 KiB.
pub const PROBE_FILE: u64 = 4 * 1024 * 1024;
/// Bytes of one mapping or file that are searched for the key.
pub const PROBE_MEMORY: u64 = 64 * 1024 * 1024;
/// Entries of the box's file system that are looked at; an image has 50,000, a host's `/usr` half a million.
pub const PROBE_ENTRIES: usize = 2_000_000;
/// The other box ends by itself after this, told or not.
pub const PROBE_HOLD: Duration = Duration::from_secs(300);
/// Free bytes below which `doctor` says that no run can start: a box has a copy of this program, under 16 MiB, and its record.
pub const ROOM_LEAST: u64 = 64 * 1024 * 1024;
