#!/usr/bin/env python3
"""toml_second.py CASES: does Python's tomllib read differently what our TOML reader reads?

CASES holds one JSON object a line: the text in hex, what ours read (or null) and why ours refused (or null); tests/fuzz_files.rs writes
it. What ours reads, tomllib must read as the same value; what ours refuses beyond tomllib must be one of the forms that it
leaves out on purpose. Exit 0: no difference. 1: differences, printed. 2: no tomllib here (Python 3.11).
"""

import collections
import json
import sys

try:
    import tomllib
except ImportError:
    print("toml_second.py: this Python has no tomllib", file=sys.stderr)
    sys.exit(2)

ON_PURPOSE = ("floats are not", "dates and times", "inline tables", "arrays of tables", "nested too deep", "64 bits do not hold")
MOST_PRINTED = 20


def plain(value):
    """Only what our reader can give."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def same(a, b):
    """As ==, but true is not 1."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def main():
    both = neither = differ = 0
    purpose = collections.Counter()
    with open(sys.argv[1], encoding="ascii") as lines:
        for line in lines:
            case = json.loads(line)
            # As ours, tomllib gets text; it takes no byte order mark itself.
            text = bytes.fromhex(case["text"]).decode().removeprefix("\ufeff")
            try:
                theirs = plain(tomllib.loads(text))
            except (tomllib.TOMLDecodeError, RecursionError):
                theirs = None
            except Exception as other:  # A crash of theirs is no answer.
                purpose[f"tomllib fails: {type(other).__name__}"] += 1
                continue
            if case["why"] is None and theirs is not None and same(case["value"], theirs):
                both += 1
            elif case["why"] is not None and theirs is None:
                neither += 1
            elif case["why"] is not None and any(w in case["why"] for w in ON_PURPOSE):
                purpose[next(w for w in ON_PURPOSE if w in case["why"])] += 1
            else:
                differ += 1
                if differ <= MOST_PRINTED:
                    print(f"DIFFERENT in {text!r}\n  ours    {case['why'] or case['value']}\n  tomllib {theirs}")
    for why, count in purpose.most_common():
        print(f"{count:7} times {why}")
    print(f"tomllib: {both} read the same, {neither} refused by both, {differ} differently")
    sys.exit(1 if differ or not both else 0)


main()
