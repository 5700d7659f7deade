"""OpenAI's Python SDK as a client of the relay: URL, token, then `chat` or `responses`. As anthropic_client.py."""
import sys
import openai

url, token, api = sys.argv[1:4]
client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0, timeout=60)
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
chat = api == "chat"


def create(on=client, content="hello", tools=False, **more):
    more.setdefault("model", "m-1")
    if chat:
        look = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
        more.setdefault("messages", [{"role": "user", "content": content}])
        make = on.chat.completions.create
    else:
        look = [{"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}]
        more.setdefault("input", content)
        make = on.responses.create
    if tools:
        more["tools"] = look
    return make(**more)


def text(answer):
    return answer.choices[0].message.content if chat else answer.output_text


def streamed(events):
    if chat:
        return "".join(c.choices[0].delta.content or "" for c in events if c.choices)
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def scene(name, good):
    print("  %-30s %s" % (name, "ok" if good else "WRONG"))
    if not good:
        sys.exit(1)


def refused(call):
    try:
        call()
    except openai.APIStatusError as e:
        return e
    return None


scene("whole, gzip", text(create()) == "one")
scene("stream", streamed(create(stream=True)) == "two words in a stream")
call = create(tools=True)
if chat:
    use = call.choices[0].message.tool_calls[0]
    scene("tool call", use.function.arguments.replace(" ", "") == '{"path":"ab"}')
    back = dict(messages=[{"role": "user", "content": "hello"}, call.choices[0].message,
                          {"role": "tool", "tool_call_id": use.id, "content": "42"}])
else:
    use = [o for o in call.output if o.type == "function_call"][0]
    scene("tool call", use.arguments.replace(" ", "") == '{"path":"ab"}')
    back = dict(input=[{"role": "user", "content": "hello"}, *call.output,
                       {"type": "function_call_output", "call_id": use.call_id, "output": "42"}])
scene("tool result", text(create(tools=True, **back)) == "seen: 42")
whole = ""
for e in create(tools=True, stream=True):
    if chat and e.choices and e.choices[0].delta.tool_calls:
        whole += e.choices[0].delta.tool_calls[0].function.arguments or ""
    elif not chat and e.type == "response.function_call_arguments.delta":
        whole += e.delta
scene("tool call in a stream", whole.replace(" ", "") == '{"path":"c"}')
with create(stream=True) as s:
    first = next(iter(s))
scene("left in mid-stream", first is not None)
scene("429 and 529, then whole", text(create(client.with_options(max_retries=2))) == "after two tries")
e = refused(create)
scene("529 as its own error", e is not None and e.status_code == 529 and "the model is busy" in str(e))
e = refused(create)
scene("400 as its own error", isinstance(e, openai.BadRequestError) and "no such thing" in str(e))
scene("a body of a megabyte", text(create(content="line with \"quotes\" and ünïcode\n" * 33000)) == "a large one")
tries = client.with_options(max_retries=5)
e = refused(lambda: create(tries, model="another"))
scene("a model that is not allowed", isinstance(e, openai.PermissionDeniedError) and "not allowed here" in e.body["message"])
unlisted = dict(web_search_options={}) if chat else dict(background=True)
e = refused(lambda: create(tries, **unlisted))
scene("a field that is not listed", isinstance(e, openai.PermissionDeniedError) and next(iter(unlisted)) in str(e))
e = refused(lambda: create(openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)))
scene("a wrong token", isinstance(e, openai.AuthenticationError))
scene("models", len(list(client.models.list())) > 0)
scene("once more", text(create()) == "the last one")
