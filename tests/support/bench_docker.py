"""Rows of `make bench` on docker, called by bench.sh: a run that does nothing against a container that does nothing, and the time until
Claude Code asks the model its first question, with us and without. After a round that does not count, interleaved rounds in turning
order; medians, quartiles and the least, for a machine is never quite idle. What we add is taken round by round. The provider is this program."""

import http.server
import ipaddress
import json
import os
import statistics
import subprocess
import sys
import threading
import time

ROUNDS = max(int(os.environ.get("ROUNDS", "15")), 4)
BASE, CLAUDE = "sanduk-base:bookworm", sys.argv[4]
SANDUK, WORK, USER = sys.argv[1], sys.argv[2], sys.argv[3]
USAGE = {"input_tokens": 10, "output_tokens": 5}
EVENTS = [
    {"type": "message_start", "message": {"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [], "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
]
STREAM = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in EVENTS)
FIRST = threading.Event()
ASKED = [0.0]


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers mini; refuses Claude Code for good, so that it ends at its first call."""

    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.say(200, json.dumps({"data": []}))

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if not FIRST.is_set():
            ASKED[0] = time.perf_counter()
            FIRST.set()
        if self.headers.get("user-agent", "").startswith("claude"):
            return self.say(402, json.dumps({"type": "error", "error": {"type": "billing_error", "message": "enough"}}))
        return self.say(200, STREAM, "text/event-stream")

    def say(self, status, body, kind="application/json"):
        body = body.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("x-should-retry", "false")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(address):
    server = http.server.ThreadingHTTPServer((address, 0), Provider)
    # A client that has left is no event.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://{address}:{server.server_address[1]}"


def run(argv, text="x", codes=(0,)):
    """Seconds of the whole command, and until the first model call."""
    FIRST.clear()
    began = time.perf_counter()
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    if done.returncode not in codes:
        sys.exit(f"bench: {argv[:3]} ended with {done.returncode}: {done.stderr[-300:]}")
    return wall, (ASKED[0] - began if FIRST.is_set() else None)


def quarters(values):
    """First quartile, median, third quartile."""
    return statistics.quantiles(values, n=4, method="inclusive")


def rows(what, ours, plain):
    """`plain`: each a name and a way to run; one row for each, all in the same rounds."""
    ways = {**plain, "": ours}
    took = {name: [] for name in ways}
    for n in range(ROUNDS + 1):
        order = list(ways)
        order = order[n % len(order):] + order[:n % len(order)]
        for name in order:
            seconds = ways[name]()
            if n > 0:
                took[name].append(seconds * 1000)
    o = took.pop("")
    for name, p in took.items():
        added = quarters([b - a for a, b in zip(p, o)])
        low, middle, high = quarters(p)
        our_low, our_middle, our_high = quarters(o)
        print(f"  {what}, against {name}: ratio {our_middle / middle:.2f}, of the least {min(o) / min(p):.2f}\n"
              f"    it {middle:.0f} ms [{low:.0f} {high:.0f}] least {min(p):.0f}   sanduk {our_middle:.0f} ms [{our_low:.0f} {our_high:.0f}] "
              f"least {min(o):.0f}   added {added[1]:+.0f} ms [{added[0]:+.0f} {added[2]:+.0f}], least {min(o) - min(p):+.0f}", flush=True)


def gateway():
    """The host's address on docker's default bridge: docker names it, or it is the first of the subnet."""
    shown = subprocess.run(["docker", "network", "inspect", "-f", "{{json .IPAM.Config}}", "bridge"],
                           capture_output=True, text=True, check=False).stdout
    first = json.loads(shown or "[{}]")[0]
    return first.get("Gateway") or str(next(ipaddress.ip_network(first.get("Subnet", "127.0.0.1/32")).hosts()))


local = serve("127.0.0.1")
common = [SANDUK, "run", "x", "-w", WORK, "--runtime", "docker", "-q", "--upstream", local]
mini = common + ["--agent", "mini", "--model", "m", "--image", BASE, "--skip-key-check"]
rows("a run that does nothing", lambda: run(mini)[0],
     {"docker run --network none … true": lambda: run(["docker", "run", "--rm", "--network", "none", BASE, "true"])[0]})
if subprocess.run(["docker", "image", "inspect", CLAUDE], capture_output=True, check=False).returncode != 0:
    sys.exit(print(f"bench: no {CLAUDE} (sanduk build): the row of Claude Code is left out"))
try:
    bridge = serve(gateway())
except OSError as why:
    sys.exit(print(f"bench: the bridge's gateway cannot be listened on ({why}): the row of Claude Code is left out"))
# Flags and variables as in resources/agents/claude.json.
SET = ("HOME=/home/agent", "ANTHROPIC_API_KEY=sk-bench", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
       "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1")


def alone(network, url):
    """Claude Code in a container of its own; it asks the provider by itself."""
    argv = ["docker", "run", "--rm", "-i", "--network", network, "--user", USER, "--workdir", "/work", "-v", f"{WORK}:/work",
            "--tmpfs", "/home/agent:mode=1777"]
    for variable in (*SET, f"ANTHROPIC_BASE_URL={url}"):
        argv += ["-e", variable]
    argv += ["--entrypoint", "/usr/local/bin/claude", CLAUDE, "-p", "--output-format", "stream-json", "--verbose",
             "--setting-sources", "", "--strict-mcp-config", "--tools=Bash,Read,Write,Edit,Glob,Grep", "--dangerously-skip-permissions"]
    return run(argv, codes=(1,))[1]


def tool_image():
    """The Python tool adds a command line to an image's entrypoint; ours has none, so one is made that has, and removed again."""
    text = f'FROM {CLAUDE}\nENTRYPOINT ["/usr/local/bin/claude"]\nENV HOME=/tmp\nUSER {USER}\n'
    made = subprocess.run(["docker", "build", "-q", "-t", TOOL_IMAGE, "-"], input=text, capture_output=True, text=True, check=False)
    return made.returncode == 0


def tool():
    """A sealed run of the Python tool, its network and its relay included."""
    return run([TOOL, "run", "x", "-w", WORK, "--runtime", "docker", "--mode", "sealed", "--agent", "claude", "--provider", "anthropic",
                "--image", TOOL_IMAGE, "--cpus", str(min(os.cpu_count() or 1, 4)), "--upstream", local], codes=(1,))[1]


TOOL, TOOL_IMAGE = os.environ.get("TOOL", ""), f"sanduk-bench-tool:{os.getpid()}"
# The network of a bridge takes docker a while to make; the host's costs nothing, and holds nothing.
beside = {"docker run (bridge)": lambda: alone("bridge", bridge), "docker run --network host": lambda: alone("host", local)}
networks = ["docker", "network", "ls", "-q", "-f", "name=^sanduk-net$"]
there = subprocess.run(networks, capture_output=True, text=True, check=False).stdout.strip()
with_tool = bool(TOOL) and tool_image()
if with_tool:
    beside["the Python tool, sealed"] = tool
try:
    rows("until Claude Code's first call", lambda: run(common + ["--agent", "claude"], codes=(1,))[1], beside)
finally:
    if with_tool:
        subprocess.run(["docker", "rmi", TOOL_IMAGE], capture_output=True, check=False)
        if not there:
            subprocess.run(["docker", "network", "rm", "sanduk-net"], capture_output=True, check=False)
