//! The built-in agent: a loop of model calls and tools until the model asks for no tool. Reads the task on standard input and its
//! settings from the environment of the turn; takes nothing from the workspace. One JSON object per line on standard output:
//! `start text tool tool_error retry usage result`; `result` is always the last and says how it ended.

use crate::error::{Error, Exit};
use crate::inside::mini::call::{self, Failure, Target};
use crate::inside::mini::prompt;
use crate::inside::mini::reply::{Answer, Call, Reply, Stop};
use crate::inside::mini::tools;
use crate::inside::mini::{chat, messages};
use crate::limits::{MINI_HISTORY_BYTES, MINI_TASK_BYTES, MINI_TURNS, MINI_UNFINISHED};
use crate::sys::env;
use crate::sys::proc::random_hex;
use serde_json::{Value, json};
use std::io::{self, Read, Write};

/// The wire protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
}

/// What the turn's environment said.
pub struct Settings {
    /// Protocol.
    pub speaks: Speaks,
    /// Where calls go.
    pub target: Target,
    /// Model name, as given.
    pub model: String,
    /// Model calls at most.
    pub max_turns: u64,
    /// The system prompt.
    pub system: String,
}

/// Stands where old tool output was.
const LEFT_OUT: &str = "[old output, left out to save room; run it again if you need it]";

/// How a run ended; the words of `ending` in the result line.
enum Ending {
    Done,
    MaxTurns,
    Failed(Failure),
}

/// The built-in agent: task on standard input, settings from the environment.
pub fn role() -> Result<Exit, Error> {
    let mut task = String::new();
    let read = io::stdin().take(MINI_TASK_BYTES.saturating_add(1)).read_to_string(&mut task);
    read.map_err(|e| Error::wrong("read", "the task on standard input", e))?;
    if u64::try_from(task.len()).is_ok_and(|n| n > MINI_TASK_BYTES) {
        return Err(Error::wrong("take", "the task", format!("it is longer than {MINI_TASK_BYTES} bytes")));
    }
    if task.trim().is_empty() {
        return Err(Error::wrong("take", "the task", "it is empty"));
    }
    let settings = settings(&env::mini())?;
    let session = random_hex(8).map_err(|e| Error::fault("make", "a session id", e))?;
    say(&json!({"type": "start", "session": session, "model": settings.model}))?;
    let mut work = Work { settings: &settings, history: vec![], turns: 0, text: String::new() };
    let ending = work.run(&task)?;
    let (word, error) = match &ending {
        Ending::Done => ("done", String::new()),
        Ending::MaxTurns => {
            ("max_turns", format!("stopped after {} model calls, the limit, with work left", work.turns))
        }
        Ending::Failed(failure) => (failure.word(), failure.why()),
    };
    let ok = matches!(ending, Ending::Done);
    say(
        &json!({"type": "result", "ok": ok, "ending": word, "text": work.text, "error": error, "turns": work.turns,
        "session": session}),
    )?;
    Ok(if ok { Exit::Ok } else { Exit::Failed })
}

fn settings(given: &[(&'static str, String)]) -> Result<Settings, Error> {
    let of = |name: &str| given.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value.as_str());
    let speaks = match of("SANDUK_MINI_PROTOCOL") {
        "messages" => Speaks::Messages,
        "chat" => Speaks::Chat,
        other => {
            return Err(Error::wrong(
                "speak",
                format!("the protocol {other:?}"),
                "mini knows messages and chat",
            ));
        }
    };
    let (path, header) = match speaks {
        Speaks::Messages => ("/v1/messages", ("x-api-key", of("SANDUK_MINI_TOKEN").to_string())),
        Speaks::Chat => {
            ("/chat/completions", ("authorization", format!("Bearer {}", of("SANDUK_MINI_TOKEN"))))
        }
    };
    let target = Target::new(of("SANDUK_MINI_BASE_URL"), path, header)?;
    let model = of("SANDUK_MINI_MODEL").to_string();
    if model.is_empty() {
        return Err(Error::wrong("call", "a model", "none was named").remedy("give --model"));
    }
    let max_turns = match of("SANDUK_MINI_MAX_TURNS") {
        "" => MINI_TURNS,
        text => text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
            Error::wrong("take", format!("the turn limit {text:?}"), "it is not a positive number")
        })?,
    };
    let system = prompt::system(of("SANDUK_MINI_PROFILE"))?;
    Ok(Settings { speaks, target, model, max_turns, system })
}

struct Work<'a> {
    settings: &'a Settings,
    /// Messages in the protocol's own form.
    history: Vec<Value>,
    turns: u64,
    /// The last thing said.
    text: String,
}

impl Work<'_> {
    fn run(&mut self, task: &str) -> Result<Ending, Error> {
        self.history.push(json!({"role": "user", "content": task}));
        let mut unfinished = 0;
        while self.turns < self.settings.max_turns {
            let reply = match self.ask()? {
                Ok(reply) => reply,
                Err(failure) => return Ok(Ending::Failed(failure)),
            };
            self.turns = self.turns.saturating_add(1);
            self.report(&reply)?;
            let capped = match &reply.stop {
                Stop::Done => false,
                Stop::Capped => true,
                Stop::Other(why) => return Ok(Ending::Failed(Failure::stopped(why))),
            };
            if reply.calls.is_empty() && !capped {
                return Ok(if self.text.is_empty() {
                    Ending::Failed(Failure::empty())
                } else {
                    Ending::Done
                });
            }
            unfinished = if capped { unfinished + 1 } else { 0 };
            if unfinished > MINI_UNFINISHED {
                return Ok(Ending::Failed(Failure::capped()));
            }
            self.remember(&reply);
            let mut answers = Vec::new();
            for call in &reply.calls {
                answers.push(self.work(call)?);
            }
            self.history.extend(match self.settings.speaks {
                Speaks::Messages => messages::answers(&answers),
                Speaks::Chat => chat::answers(&answers),
            });
            shrink(&mut self.history);
        }
        Ok(Ending::MaxTurns)
    }

    fn ask(&self) -> Result<Result<Reply, Failure>, Error> {
        let body = match self.settings.speaks {
            Speaks::Messages => messages::request(self.settings, &self.history),
            Speaks::Chat => chat::request(self.settings, &self.history),
        };
        let mut lost = Ok(());
        let reply = call::ask(&self.settings.target, self.settings.speaks, &body.to_string(), &mut |why| {
            lost = say(&json!({"type": "retry", "text": why}));
        });
        lost.map(|()| reply)
    }

    fn report(&mut self, reply: &Reply) -> Result<(), Error> {
        let mut line = json!({"type": "usage"});
        let used = &reply.usage;
        let figures = [
            ("input", used.input.map(Value::from)),
            ("output", used.output.map(Value::from)),
            ("cost", used.cost.map(Value::from)),
        ];
        for (name, figure) in figures {
            if let Some(figure) = figure {
                line[name] = figure;
            }
        }
        say(&line)?;
        if !reply.text.trim().is_empty() {
            self.text = reply.text.clone();
            say(&json!({"type": "text", "text": reply.text}))?;
        }
        Ok(())
    }

    fn remember(&mut self, reply: &Reply) {
        let speaks = self.settings.speaks;
        // An assistant message without any content is refused by providers.
        if !reply.calls.is_empty() || !reply.text.trim().is_empty() {
            self.history.push(if speaks == Speaks::Messages {
                messages::said(reply)
            } else {
                chat::said(reply)
            });
        }
        if reply.calls.is_empty() {
            self.history.push(json!({"role": "user", "content": prompt::GO_ON}));
        }
    }

    fn work(&self, call: &Call) -> Result<Answer, Error> {
        let done = match tools::read_input(call) {
            Ok(tool) => {
                say(&json!({"type": "tool", "name": call.name, "arg": tool.short()}))?;
                tool.run()
            }
            Err(why) => Err(why),
        };
        if let Err(why) = &done {
            say(&json!({"type": "tool_error", "name": call.name, "text": tools::first_line(why)}))?;
        }
        let failed = done.is_err();
        Ok(Answer { id: call.id.clone(), text: done.unwrap_or_else(|why| why), failed })
    }
}

/// Takes old tool output out of a history that is too long for a model; half of the room, so that it happens seldom.
fn shrink(history: &mut [Value]) {
    let mut size: usize = history.iter().map(|m| m.to_string().len()).sum();
    if size <= MINI_HISTORY_BYTES {
        return;
    }
    // The last answers are what the model is about to read.
    let old = history.len().saturating_sub(2);
    for message in history.iter_mut().take(old) {
        let blocks: Vec<&mut Value> = if message["role"] == "tool" {
            vec![message]
        } else {
            let blocks = message["content"].as_array_mut().into_iter().flatten();
            blocks.filter(|b| b["type"] == "tool_result").collect()
        };
        for block in blocks {
            let length = block["content"].as_str().map_or(0, str::len);
            if size > MINI_HISTORY_BYTES / 2 && length > LEFT_OUT.len() {
                block["content"] = json!(LEFT_OUT);
                size = size.saturating_sub(length);
            }
        }
    }
}

/// One line; nobody reading it is the end of the work.
fn say(line: &Value) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let written = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Error::fault("write", "to standard output", e))
}
