//! OpenAI Chat Completions, as the built-in agent speaks it: the request, what goes back into it, and a streamed answer put
//! together. Names no token cap: which field a server takes for it is the relay's knowledge.

use crate::inside::mini::agent::Settings;
use crate::inside::mini::prompt;
use crate::inside::mini::reply::{Answer, Call, Reply, Stop};
use crate::limits::MINI_CALLS;
use serde_json::{Value, json};

/// The body of one call.
pub fn request(settings: &Settings, history: &[Value]) -> Value {
    let tools: Vec<Value> = prompt::TOOLS
        .iter()
        .map(|t| {
            json!({"type": "function",
                "function": {"name": t.name, "description": t.about, "parameters": prompt::schema(t)}})
        })
        .collect();
    let mut messages = vec![json!({"role": "system", "content": settings.system})];
    messages.extend_from_slice(history);
    json!({"model": settings.model, "stream": true, "stream_options": {"include_usage": true}, "tools": tools,
        "messages": messages})
}

/// An answer for the history.
pub fn said(reply: &Reply) -> Value {
    let calls: Vec<Value> = reply
        .calls
        .iter()
        .map(|c| {
            json!({"id": c.id, "type": "function",
                "function": {"name": c.name, "arguments": c.object().to_string()}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}

/// Tool results for the history. The protocol has no error mark, so the text says it.
pub fn answers(answers: &[Answer]) -> Vec<Value> {
    let text = |a: &Answer| if a.failed { format!("ERROR: {}", a.text) } else { a.text.clone() };
    answers.iter().map(|a| json!({"role": "tool", "tool_call_id": a.id, "content": text(a)})).collect()
}

/// Puts a streamed answer together.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    /// The index that each of `reply.calls` came with.
    indexes: Vec<Option<u64>>,
    stopped: bool,
}

impl Stream {
    /// One event. `Err`: the provider's own error.
    pub fn event(&mut self, data: &Value) -> Result<(), String> {
        if let Some(error) = data.get("error").filter(|e| !e.is_null()) {
            return Err(error["message"].as_str().unwrap_or("no reason given").to_string());
        }
        let usage = &data["usage"];
        self.reply.usage.input = usage["prompt_tokens"].as_u64().or(self.reply.usage.input);
        self.reply.usage.output = usage["completion_tokens"].as_u64().or(self.reply.usage.output);
        let cost = usage["cost"].as_f64().filter(|c| c.is_finite() && *c >= 0.0);
        self.reply.usage.cost = cost.or(self.reply.usage.cost);
        let Some(choice) = data["choices"].as_array().and_then(|choices| choices.first()) else {
            return Ok(());
        };
        self.reply.text.push_str(choice["delta"]["content"].as_str().unwrap_or(""));
        for piece in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            self.piece(piece);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.stopped = true;
            self.reply.stop = match reason {
                "stop" | "tool_calls" | "function_call" => Stop::Done,
                "length" => Stop::Capped,
                other => Stop::Other(other.to_string()),
            };
        }
        Ok(())
    }

    /// The whole answer; `None` where the stream did not reach its end.
    pub fn whole(self) -> Option<Reply> {
        self.stopped.then_some(self.reply)
    }

    /// A piece of a tool call. It belongs to the last one with its index; servers are known to leave the index out, to start
    /// it at 1, and to give several calls the same: a new id is a new call.
    fn piece(&mut self, piece: &Value) {
        let calls = &mut self.reply.calls;
        let word = |value: &Value| value.as_str().unwrap_or("").to_string();
        let (id, index) = (word(&piece["id"]), piece["index"].as_u64());
        let same = self.indexes.iter().rposition(|i| index.is_none() || *i == index);
        let fresh = !id.is_empty() && calls.iter().all(|c| c.id != id);
        let at = match same {
            Some(at) if !fresh => at,
            _ if calls.len() >= MINI_CALLS => return,
            _ => {
                self.indexes.push(index);
                calls.push(Call { id, name: String::new(), input: String::new() });
                calls.len().saturating_sub(1)
            }
        };
        if let Some(call) = calls.get_mut(at) {
            if call.name.is_empty() {
                call.name = word(&piece["function"]["name"]);
            }
            call.input.push_str(piece["function"]["arguments"].as_str().unwrap_or(""));
        }
    }
}
