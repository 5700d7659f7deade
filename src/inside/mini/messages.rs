//! Anthropic Messages, as the built-in agent speaks it: the request, what goes back into it, and a streamed answer put together.
//! Sends only fields that the sealed relay lets through.

use crate::inside::mini::agent::Settings;
use crate::inside::mini::prompt;
use crate::inside::mini::reply::{Answer, Call, Reply, Stop};
use crate::limits::MINI_OUTPUT_TOKENS;
use serde_json::{Value, json};

/// The body of one call. Cache marks on the system prompt and the last message make the rest of the talk cheap.
pub fn request(settings: &Settings, history: &[Value]) -> Value {
    let tools: Vec<Value> = prompt::TOOLS
        .iter()
        .map(|t| json!({"name": t.name, "description": t.about, "input_schema": prompt::schema(t)}))
        .collect();
    let mut history = history.to_vec();
    if let Some(last) = history.last_mut() {
        if let Some(text) = last["content"].as_str() {
            last["content"] = json!([{"type": "text", "text": text}]);
        }
        if let Some(block) = last["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
    }
    json!({"model": settings.model, "max_tokens": MINI_OUTPUT_TOKENS, "stream": true, "tools": tools, "messages": history,
        "system": [{"type": "text", "text": settings.system, "cache_control": {"type": "ephemeral"}}]})
}

/// An answer for the history.
pub fn said(reply: &Reply) -> Value {
    let mut content = Vec::new();
    if !reply.text.trim().is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for call in &reply.calls {
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.object()}));
    }
    json!({"role": "assistant", "content": content})
}

/// Tool results for the history; none where no tool ran.
pub fn answers(answers: &[Answer]) -> Vec<Value> {
    let blocks: Vec<Value> = answers
        .iter()
        .map(|a| json!({"type": "tool_result", "tool_use_id": a.id, "content": a.text, "is_error": a.failed}))
        .collect();
    if blocks.is_empty() { Vec::new() } else { vec![json!({"role": "user", "content": blocks})] }
}

/// Puts a streamed answer together.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    /// Uncached, cache written, cache read.
    input: [Option<u64>; 3],
    stopped: bool,
    ended: bool,
}

impl Stream {
    /// One event. `Err`: the provider's own error.
    pub fn event(&mut self, data: &Value) -> Result<(), String> {
        match data["type"].as_str().unwrap_or("") {
            "error" => {
                return Err(data["error"]["message"].as_str().unwrap_or("no reason given").to_string());
            }
            "message_start" => self.usage(&data["message"]["usage"]),
            "content_block_start" => self.block(&data["content_block"]),
            "content_block_delta" => self.delta(&data["delta"]),
            "message_delta" => {
                self.usage(&data["usage"]);
                if let Some(reason) = data["delta"]["stop_reason"].as_str() {
                    self.stopped = true;
                    self.reply.stop = match reason {
                        "end_turn" | "tool_use" | "stop_sequence" => Stop::Done,
                        "max_tokens" | "pause_turn" => Stop::Capped,
                        other => Stop::Other(other.to_string()),
                    };
                }
            }
            "message_stop" => self.ended = true,
            _ => {}
        }
        Ok(())
    }

    /// The whole answer; `None` where the stream did not reach its end.
    pub fn whole(mut self) -> Option<Reply> {
        let known = self.input.iter().flatten();
        self.reply.usage.input =
            known.fold(None, |sum: Option<u64>, n| Some(sum.unwrap_or(0).saturating_add(*n)));
        (self.stopped && self.ended).then_some(self.reply)
    }

    fn block(&mut self, block: &Value) {
        match block["type"].as_str() {
            Some("text") => {
                if !self.reply.text.is_empty() {
                    self.reply.text.push('\n');
                }
                self.reply.text.push_str(block["text"].as_str().unwrap_or(""));
            }
            Some("tool_use") => {
                let word = |name: &str| block[name].as_str().unwrap_or("").to_string();
                self.reply.calls.push(Call { id: word("id"), name: word("name"), input: String::new() });
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: &Value) {
        match delta["type"].as_str() {
            Some("text_delta") => self.reply.text.push_str(delta["text"].as_str().unwrap_or("")),
            Some("input_json_delta") => {
                if let Some(call) = self.reply.calls.last_mut() {
                    call.input.push_str(delta["partial_json"].as_str().unwrap_or(""));
                }
            }
            _ => {}
        }
    }

    /// Later figures replace earlier ones; a figure that is left out stays.
    fn usage(&mut self, usage: &Value) {
        let names = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        for (held, name) in self.input.iter_mut().zip(names) {
            *held = usage[name].as_u64().or(*held);
        }
        self.reply.usage.output = usage["output_tokens"].as_u64().or(self.reply.usage.output);
    }
}
