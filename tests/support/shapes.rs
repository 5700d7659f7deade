//! The three wire protocols as the scripted provider speaks them: events, whole answers and errors, built from one reply of
//! the script. Shapes follow recorded answers of the real services. Loaded by `provider.rs`.

use super::{Reply, Speaks, Tool, Usage};
use serde_json::{Value, json};

/// The text of the last tool result in a request of any protocol; empty where there is none.
pub fn last_result(request: &Value) -> String {
    let items = request["messages"].as_array().or(request["input"].as_array());
    for item in items.into_iter().flatten().rev() {
        if item["role"] == "tool" {
            return text_of(&item["content"]);
        }
        if item["type"] == "function_call_output" {
            return text_of(&item["output"]);
        }
        let block =
            item["content"].as_array().into_iter().flatten().rev().find(|b| b["type"] == "tool_result");
        if let Some(block) = block {
            return text_of(&block["content"]);
        }
    }
    String::new()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Assistant turns in a request.
pub fn turns(request: &Value) -> usize {
    let messages =
        request["messages"].as_array().into_iter().flatten().filter(|m| m["role"] == "assistant").count();
    let items = request["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = |i: &Value| i["role"] == "assistant" || i["type"] == "function_call";
    // Adjacent items of one answer count once.
    let starts =
        items.iter().enumerate().filter(|(n, i)| ours(i) && (*n == 0 || !ours(&items[n - 1]))).count();
    messages + starts
}

/// Puts the last tool result in the place of `{last}`.
pub fn fill(reply: &mut Reply, last: &str) {
    if let Some(text) = &mut reply.text {
        *text = text.replace("{last}", last);
    }
    for tool in &mut reply.tools {
        if let Some(input) = &mut tool.input {
            fill_value(input, last);
        }
    }
}

fn fill_value(value: &mut Value, last: &str) {
    match value {
        Value::String(text) => *text = text.replace("{last}", last),
        Value::Array(items) => items.iter_mut().for_each(|v| fill_value(v, last)),
        Value::Object(members) => members.values_mut().for_each(|v| fill_value(v, last)),
        _ => {}
    }
}

fn input_text(tool: &Tool) -> String {
    tool.raw.clone().unwrap_or_else(|| tool.input.clone().unwrap_or(json!({})).to_string())
}

/// Cuts at a character in the middle, so that every stream has more than one delta.
fn halves(text: &str) -> [&str; 2] {
    let at = (text.len() / 2..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    let (a, b) = text.split_at(at);
    [a, b]
}

/// The protocol's error object.
pub fn error(speaks: Speaks, status: u16, message: &str) -> Value {
    let kind = match status {
        400 | 413 | 422 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    match speaks {
        Speaks::Messages => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
        }
        _ => json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}),
    }
}

/// The events of a streamed answer, each with its blank line.
pub fn events(speaks: Speaks, request: &Value, reply: &Reply) -> Vec<String> {
    match speaks {
        Speaks::Messages => messages_events(request, reply),
        Speaks::Responses => responses_events(request, reply),
        Speaks::Chat => chat_events(request, reply),
    }
}

/// The whole of an answer that is not streamed.
pub fn whole(speaks: Speaks, request: &Value, reply: &Reply) -> Value {
    match speaks {
        Speaks::Messages => messages_whole(request, reply),
        Speaks::Responses => responses_whole(request, reply),
        Speaks::Chat => chat_whole(request, reply),
    }
}

fn messages_stop(reply: &Reply) -> &str {
    match (reply.stop.as_deref(), reply.tools.is_empty()) {
        (Some("length"), _) => "max_tokens",
        (Some(other), _) => other,
        (_, false) => "tool_use",
        _ => "end_turn",
    }
}

fn messages_usage(usage: Usage, output: u64) -> Value {
    json!({"input_tokens": usage.input, "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read, "output_tokens": output, "service_tier": "standard"})
}

fn messages_events(request: &Value, reply: &Reply) -> Vec<String> {
    let mut out = Vec::new();
    let mut event =
        |data: Value| out.push(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("")));
    let mut message = json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": request["model"],
        "content": [], "stop_reason": null, "stop_sequence": null});
    if let Some(usage) = reply.usage {
        message["usage"] = messages_usage(usage, 1);
    }
    event(json!({"type": "message_start", "message": message}));
    event(json!({"type": "ping"}));
    let mut index = 0;
    if let Some(text) = &reply.text {
        event(
            json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}),
        );
        for half in halves(text) {
            event(
                json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": half}}),
            );
        }
        event(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    }
    for (n, tool) in reply.tools.iter().enumerate() {
        event(json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use",
            "id": format!("toolu_{}_{n}", turns(request)), "name": tool.name, "input": {}}}));
        for half in halves(&input_text(tool)) {
            event(json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "input_json_delta", "partial_json": half}}));
        }
        event(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    }
    let mut end = json!({"type": "message_delta", "delta": {"stop_reason": messages_stop(reply), "stop_sequence": null}});
    if let Some(usage) = reply.usage {
        end["usage"] = json!({"output_tokens": usage.output});
    }
    event(end);
    event(json!({"type": "message_stop"}));
    out
}

fn messages_whole(request: &Value, reply: &Reply) -> Value {
    let mut content = Vec::new();
    if let Some(text) = &reply.text {
        content.push(json!({"type": "text", "text": text}));
    }
    for (n, tool) in reply.tools.iter().enumerate() {
        let input = tool.raw.clone().map_or(tool.input.clone().unwrap_or(json!({})), Value::String);
        let id = format!("toolu_{}_{n}", turns(request));
        content.push(json!({"type": "tool_use", "id": id, "name": tool.name, "input": input}));
    }
    let mut message = json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": request["model"],
        "content": content, "stop_reason": messages_stop(reply), "stop_sequence": null});
    if let Some(usage) = reply.usage {
        message["usage"] = messages_usage(usage, usage.output);
    }
    message
}

fn chat_stop(reply: &Reply) -> &str {
    match (reply.stop.as_deref(), reply.tools.is_empty()) {
        (Some(other), _) => other,
        (_, false) => "tool_calls",
        _ => "stop",
    }
}

fn chat_usage(usage: Usage, cost: Option<f64>) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let mut out = json!({"prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning}});
    if let Some(cost) = cost {
        out["cost"] = json!(cost);
    }
    out
}

fn chat_call(request: &Value, n: usize, tool: &Tool, arguments: &str) -> Value {
    json!({"id": format!("call_{}_{n}", turns(request)), "type": "function",
        "function": {"name": tool.name, "arguments": arguments}})
}

fn chat_events(request: &Value, reply: &Reply) -> Vec<String> {
    let mut out = Vec::new();
    let wants_usage = request["stream_options"]["include_usage"] == json!(true);
    let mut chunk = |choices: Value, usage: Value| {
        let mut data = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": request["model"], "choices": choices});
        if wants_usage {
            data["usage"] = usage;
        }
        out.push(format!("data: {data}\n\n"));
    };
    let choice = |delta: Value, stop: Value| json!([{"index": 0, "delta": delta, "finish_reason": stop}]);
    chunk(choice(json!({"role": "assistant", "content": ""}), Value::Null), Value::Null);
    for half in reply.text.iter().flat_map(|t| halves(t)) {
        chunk(choice(json!({"content": half}), Value::Null), Value::Null);
    }
    for (n, tool) in reply.tools.iter().enumerate() {
        let mut start = chat_call(request, n, tool, "");
        start["index"] = json!(n);
        chunk(choice(json!({"tool_calls": [start]}), Value::Null), Value::Null);
        for half in halves(&input_text(tool)) {
            let piece = json!({"index": n, "function": {"arguments": half}});
            chunk(choice(json!({"tool_calls": [piece]}), Value::Null), Value::Null);
        }
    }
    chunk(choice(json!({}), json!(chat_stop(reply))), Value::Null);
    if let (true, Some(usage)) = (wants_usage, reply.usage) {
        chunk(json!([]), chat_usage(usage, reply.cost));
    }
    out.push("data: [DONE]\n\n".into());
    out
}

fn chat_whole(request: &Value, reply: &Reply) -> Value {
    let calls: Vec<Value> =
        reply.tools.iter().enumerate().map(|(n, t)| chat_call(request, n, t, &input_text(t))).collect();
    let mut message = json!({"role": "assistant", "content": reply.text, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let mut out = json!({"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000,
        "model": request["model"], "choices": [{"index": 0, "message": message, "finish_reason": chat_stop(reply)}]});
    if let Some(usage) = reply.usage {
        out["usage"] = chat_usage(usage, reply.cost);
    }
    out
}

fn responses_items(request: &Value, reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(text) = &reply.text {
        items.push(
            json!({"id": "msg_scripted", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}),
        );
    }
    for (n, tool) in reply.tools.iter().enumerate() {
        let id = turns(request);
        items.push(json!({"id": format!("fc_{id}_{n}"), "type": "function_call", "status": "completed",
            "call_id": format!("call_{id}_{n}"), "name": tool.name, "arguments": input_text(tool)}));
    }
    items
}

fn responses_whole(request: &Value, reply: &Reply) -> Value {
    let cut = reply.stop.as_deref() == Some("length");
    let mut out = json!({"id": "resp_scripted", "object": "response", "created_at": 1_700_000_000,
        "status": if cut { "incomplete" } else { "completed" }, "model": request["model"], "error": null,
        "incomplete_details": if cut { json!({"reason": "max_output_tokens"}) } else { Value::Null },
        "output": responses_items(request, reply), "store": false, "usage": null});
    if let Some(usage) = reply.usage {
        let input = usage.input + usage.cache_read + usage.cache_write;
        out["usage"] = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": usage.cache_read},
            "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": input + usage.output});
        if let Some(cost) = reply.cost {
            out["usage"]["cost"] = json!(cost);
        }
    }
    out
}

fn responses_events(request: &Value, reply: &Reply) -> Vec<String> {
    let mut out = Vec::new();
    let mut event = |mut data: Value| {
        data["sequence_number"] = json!(out.len());
        out.push(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("")));
    };
    let end = responses_whole(request, reply);
    let mut start = end.clone();
    (start["status"], start["output"], start["usage"]) = (json!("in_progress"), json!([]), Value::Null);
    event(json!({"type": "response.created", "response": start}));
    event(json!({"type": "response.in_progress", "response": start}));
    for (n, item) in responses_items(request, reply).into_iter().enumerate() {
        let mut open = item.clone();
        open["status"] = json!("in_progress");
        let id = item["id"].clone();
        if item["type"] == "message" {
            let part = item["content"][0].clone();
            let text = part["text"].as_str().unwrap_or("").to_string();
            let mut empty = part.clone();
            (open["content"], empty["text"]) = (json!([]), json!(""));
            event(json!({"type": "response.output_item.added", "output_index": n, "item": open}));
            event(
                json!({"type": "response.content_part.added", "item_id": id, "output_index": n, "content_index": 0, "part": empty}),
            );
            for half in halves(&text) {
                event(
                    json!({"type": "response.output_text.delta", "item_id": id, "output_index": n, "content_index": 0, "delta": half}),
                );
            }
            event(
                json!({"type": "response.output_text.done", "item_id": id, "output_index": n, "content_index": 0, "text": text}),
            );
            event(
                json!({"type": "response.content_part.done", "item_id": id, "output_index": n, "content_index": 0, "part": part}),
            );
        } else {
            let arguments = item["arguments"].as_str().unwrap_or("").to_string();
            open["arguments"] = json!("");
            event(json!({"type": "response.output_item.added", "output_index": n, "item": open}));
            for half in halves(&arguments) {
                event(
                    json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": n, "delta": half}),
                );
            }
            event(
                json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": n, "arguments": arguments}),
            );
        }
        event(json!({"type": "response.output_item.done", "output_index": n, "item": item}));
    }
    let last = if end["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
    event(json!({"type": last, "response": end}));
    out
}
