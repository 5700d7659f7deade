#!/usr/bin/env python3
"""h11_second.py CASES: is any request that our reader takes read differently by h11 (PyPI, MIT)?

CASES holds one JSON object a line: the bytes of a connection and the requests that we read from it (tests/fuzz.rs writes it).
h11 may refuse what we read (counted, with its reason); where it reads a request, method, target, fields and body must be the
same. Installs h11 into target/h11 on first use. Exit 0: no difference. 1: differences, printed. 2: could not run.
"""

import collections
import importlib
import json
import os
import subprocess
import sys

VERSION = "0.16.0"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACE = os.path.join(ROOT, "target", "h11")
MOST_PRINTED = 20


def second_reader():
    """The h11 module; from target/h11, so that nothing on the host is changed."""
    sys.path.insert(0, PLACE)
    try:
        import h11
    except ImportError:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", PLACE, f"h11=={VERSION}"]
        if subprocess.run(pip, check=False).returncode != 0:
            print("h11_second.py: cannot install h11 with pip; python3-h11 of Debian also serves", file=sys.stderr)
            sys.exit(2)
        importlib.invalidate_caches()
        import h11
    return h11


def read(h11, data, most):
    """Up to `most` requests as h11 reads them, and why it stopped early, if it did."""
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    conn.receive_data(data)
    requests = []
    try:
        while len(requests) < most:
            event = conn.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                fields = [[n.hex(), v.hex()] for n, v in request.headers.raw_items()]
                requests.append(
                    {
                        "method": request.method.hex(),
                        "target": request.target.hex(),
                        "fields": fields,
                        "body": body.hex(),
                    }
                )
                # Answer, so that h11 goes on to the next request.
                head = h11.Response(status_code=200, headers=[("Content-Length", "0")])
                conn.send(head)
                conn.send(h11.EndOfMessage())
                if conn.our_state is h11.MUST_CLOSE:
                    return requests, None if len(requests) == most else "h11 closes after this request"
                conn.start_next_cycle()
            else:
                return requests, f"h11 stops at {event}"
    except h11.RemoteProtocolError as refusal:
        return requests, f"h11 refuses: {refusal}"
    return requests, None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    h11 = second_reader()
    cases = same = differ = 0
    refused = collections.Counter()
    with open(sys.argv[1], encoding="ascii") as lines:
        for line in lines:
            case = json.loads(line)
            data, ours = bytes.fromhex(case["bytes"]), case["messages"]
            theirs, why = read(h11, data, len(ours))
            # h11 hands this one value out in lower case.
            for field in (field for mine in ours for field in mine["fields"]):
                name, value = map(bytes.fromhex, field)
                if name.lower() == b"transfer-encoding":
                    field[1] = value.lower().hex()
            cases += 1
            for mine, other in zip(ours, theirs):
                if mine == other:
                    same += 1
                    continue
                differ += 1
                if differ <= MOST_PRINTED:
                    print(f"DIFFERENT in {data!r}\n  ours {mine}\n  h11  {other}")
            if len(theirs) < len(ours):
                refused[why] += 1
                if why is None or why.startswith("h11 stops"):
                    # It waits for more where we read a whole request.
                    differ += 1
                    if differ <= MOST_PRINTED:
                        print(f"DIFFERENT: {why} in {data!r}\n  ours {ours[len(theirs)]}")
    for why, count in refused.most_common(12):
        print(f"{count:7} times {why}")
    print(f"h11 {h11.__version__}: {cases} connections, {same} requests read the same, {differ} differently")
    sys.exit(1 if differ or not same else 0)


main()
