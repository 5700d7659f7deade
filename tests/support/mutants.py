#!/usr/bin/env python3
"""mutants.py [NAME…]: breaks one line at a time (mutants.txt), builds, runs the test named with it, and expects red.

Works in a copy of the committed tree, target/mutants/tree, with a target folder of its own. Prints a table; exit 1 where a test
stayed green, a mutant did not compile, or a line is no longer there. TARGET is the target triple.
"""
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACE = os.path.join(ROOT, "target", "mutants")
TREE = os.path.join(PLACE, "tree")


def rows():
    """(name, file, old, new, arguments) of each mutant."""
    with open(os.path.join(ROOT, "tests/support/mutants.txt"), encoding="utf-8") as text:
        for block in text.read().split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if not lines:
                continue
            name, file = (word.strip() for word in lines[0].split("|"))
            old, new, test = (next(l[len(k) :] for l in lines[1:] if l.startswith(k)) for k in ("- ", "+ ", "test "))
            yield name, file, old, new, test.split()


def cargo(arguments, **more):
    env = dict(os.environ, CARGO_TARGET_DIR=os.path.join(PLACE, "target"), CARGO_BUILD_TARGET=os.environ["TARGET"])
    # Nobody debugs a mutant; without line tables it is built and linked in half the time.
    env["CARGO_PROFILE_DEV_DEBUG"] = "0"
    return subprocess.run(["cargo", *arguments], cwd=TREE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def verdict(file, old, new, test):
    path = os.path.join(TREE, file)
    with open(path, encoding="utf-8") as source:
        text = source.read()
    if text.count(old) != 1:
        return f"the line stands there {text.count(old)} times"
    try:
        with open(path, "w", encoding="utf-8") as source:
            source.write(text.replace(old, new))
        # A lint that the mutant trips is no test: warnings stay warnings.
        targets, names = split(test)
        built = cargo(["test", "--locked", "--no-run", *targets])
        if built.returncode != 0:
            why = next((l for l in built.stdout.splitlines() if l.startswith("error")), "?")
            return f"does not compile: {why}"
        try:
            ran = cargo(["test", "--locked", *targets, "--", *names], timeout=300)
        except subprocess.TimeoutExpired:
            return "noticed (it hung)"
        if ran.returncode == 0:
            return "NOT NOTICED" if "0 passed" not in ran.stdout.split("test result")[-1] else "no such test"
        failed = [l.split()[1] for l in ran.stdout.splitlines() if l.startswith("test ") and l.endswith("FAILED")]
        return "noticed by " + (", ".join(failed[:3]) or "an abort") + (f" and {len(failed) - 3} more" if len(failed) > 3 else "")
    finally:
        with open(path, "w", encoding="utf-8") as source:
            source.write(text)


def split(test):
    """Which targets, and which tests of them."""
    targets, names, words = [], [], list(test)
    while words:
        word = words.pop(0)
        if word == "--test":
            targets += [word, words.pop(0)]
        elif word.startswith("--"):
            targets.append(word)
        else:
            names.append(word)
    return targets, names


def main():
    os.makedirs(TREE, exist_ok=True)
    subprocess.run("git archive HEAD | tar -x -C target/mutants/tree", shell=True, cwd=ROOT, check=True)
    wanted, bad, count = sys.argv[1:], 0, 0
    for name, file, old, new, test in rows():
        if wanted and name not in wanted:
            continue
        begun = time.monotonic()
        said = verdict(file, old, new, test)
        good = said.startswith("noticed")
        bad, count = bad + (not good), count + 1
        print(f"{'ok ' if good else 'BAD'} {name:28} {file:28} {said} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{count} mutants, {count - bad} noticed")
    sys.exit(1 if bad or not count else 0)


main()
