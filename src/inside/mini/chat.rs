//! OpenAI Chat Completions, as the built-in agent speaks it: the request, what goes back into it, and a streamed answer put
//! together. Names no token cap: which field a server takes for it is the relay's knowledge.

use crate::inside::mini::agent::{Answer, Call, Reply, Settings};
use crate::inside::mini::prompt;
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
            self.reply.unfinished = reason == "length";
        }
        Ok(())
    }

    /// The whole answer; `None` where the stream did not reach its end.
    pub fn whole(self) -> Option<Reply> {
        self.stopped.then_some(self.reply)
    }

    /// A piece of a tool call; some servers leave the index out of single calls, and send whole calls at once.
    fn piece(&mut self, piece: &Value) {
        let calls = &mut self.reply.calls;
        let fresh = piece["id"].as_str().is_some_and(|id| !id.is_empty() && calls.iter().all(|c| c.id != id));
        let index = piece["index"].as_u64().and_then(|n| usize::try_from(n).ok());
        let index = index.unwrap_or(if fresh { calls.len() } else { calls.len().saturating_sub(1) });
        if index > calls.len() || index >= MINI_CALLS {
            return;
        }
        if index == calls.len() {
            calls.push(Call { id: String::new(), name: String::new(), input: String::new() });
        }
        if let Some(call) = calls.get_mut(index) {
            let word = |value: &Value| value.as_str().unwrap_or("").to_string();
            if call.id.is_empty() {
                call.id = word(&piece["id"]);
            }
            if call.name.is_empty() {
                call.name = word(&piece["function"]["name"]);
            }
            call.input.push_str(piece["function"]["arguments"].as_str().unwrap_or(""));
        }
    }
}
