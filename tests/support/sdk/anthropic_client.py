"""Anthropic's Python SDK as a client of the relay: URL and token come as arguments. Prints a line per scene; ends with 1 at the first surprise."""
import sys
import anthropic

url, token = sys.argv[1:3]
client = anthropic.Anthropic(base_url=url, api_key=token, max_retries=0, timeout=60)
TOOLS = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
ask = dict(model="m-1", max_tokens=500, messages=[{"role": "user", "content": "hello"}])


def text(message):
    return "".join(b.text for b in message.content if b.type == "text")


def scene(name, good):
    print("  %-30s %s" % (name, "ok" if good else "WRONG"))
    if not good:
        sys.exit(1)


def refused(call):
    try:
        call()
    except anthropic.APIStatusError as e:
        return e
    return None


one = client.messages.create(**ask)
scene("whole, gzip", text(one) == "one" and one.usage.input_tokens == 100)
with client.messages.stream(**ask) as s:
    got = "".join(s.text_stream)
    scene("stream", got == "two words in a stream" and s.get_final_message().stop_reason == "end_turn")
call = client.messages.create(tools=TOOLS, **ask)
use = [b for b in call.content if b.type == "tool_use"]
scene("tool call", call.stop_reason == "tool_use" and use[0].input == {"path": "a b"})
back = ask["messages"] + [{"role": "assistant", "content": call.content},
                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use[0].id, "content": "42"}]}]
scene("tool result", text(client.messages.create(model="m-1", max_tokens=500, tools=TOOLS, messages=back)) == "seen: 42")
with client.messages.stream(tools=TOOLS, **ask) as s:
    scene("tool call in a stream", s.get_final_message().content[-1].input == {"path": "c"})
with client.messages.create(stream=True, **ask) as s:
    first = next(iter(s)).type
scene("left in mid-stream", first == "message_start")
again = client.with_options(max_retries=2).messages.create(**ask)
scene("429 and 529, then whole", text(again) == "after two tries")
e = refused(lambda: client.messages.create(**ask))
scene("529 as its own error", e is not None and e.status_code == 529 and "the model is busy" in str(e))
e = refused(lambda: client.messages.create(**ask))
scene("400 as its own error", isinstance(e, anthropic.BadRequestError) and "no such thing" in str(e))
large = dict(ask, messages=[{"role": "user", "content": "line with \"quotes\" and ünïcode\n" * 33000}])
scene("a body of a megabyte", text(client.messages.create(**large)) == "a large one")
tries = client.with_options(max_retries=5)
e = refused(lambda: tries.messages.create(**dict(ask, model="another")))
scene("a model that is not allowed", isinstance(e, anthropic.PermissionDeniedError) and "not allowed here" in e.body["error"]["message"])
e = refused(lambda: tries.messages.create(tools=[{"type": "web_search_20250305", "name": "web_search"}], **ask))
scene("a search by the provider", isinstance(e, anthropic.PermissionDeniedError) and "web_search" in e.body["error"]["message"])
e = refused(lambda: tries.beta.messages.create(betas=["never-heard-of-2026-01-01"], **ask))
scene("a beta that is not listed", isinstance(e, anthropic.PermissionDeniedError) and "never-heard-of" in str(e))
e = refused(lambda: anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(**ask))
scene("a wrong token", isinstance(e, anthropic.AuthenticationError))
scene("count_tokens", client.messages.count_tokens(model="m-1", messages=ask["messages"]).input_tokens > 0)
scene("models", len(list(client.models.list())) > 0)
scene("beta messages, as they come", text(client.beta.messages.create(**ask)) == "the last one")
