#!/usr/bin/env python3
"""How long a C++ throw takes with 1 and with 10,000 objects linked, on one thread and on two: natively and in `uruk run`.

A throw passes five frames, each of another object where there are as many. Per throw, medians over the rounds; "first" is
the first throw of the process, which finds every table cold.

    scripts/bench-throws.py [--objects 1 1000 10000] [--rounds 5] [--json results.json]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "program-tests" / "programs" / "throws"
PLACEHOLDER = b"frame_00000"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="+", default=[1, 10000], help="how many objects (default 1 10000)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--throws", type=int, default=20000, help="throws in each measurement (default 20000)")
    parser.add_argument("--uruk", help="the uruk command (default: URUK_BIN, else target/release/uruk)")
    parser.add_argument("--native-only", action="store_true", help="leave the engine out")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    options = parser.parse_args()
    uruk = options.uruk or os.environ.get("URUK_BIN") or ROOT / "target" / "release" / "uruk"
    if not options.native_only and not pathlib.Path(uruk).is_file():
        sys.exit(f"error: no `uruk` at {uruk}; build it with `cargo build --release -p uruk --features cli`, or set URUK_BIN")
    results = []
    print(f"{'objects':>7}  {'':10} {'first us':>9} {'1 thread us':>12} {'2 threads us':>13}")
    for objects in options.objects:
        main_object, archive, native = build(objects)
        commands = {"native": [native, str(options.throws)]}
        if not options.native_only:
            commands["uruk run"] = [str(uruk), "run", main_object, archive, "--", str(options.throws)]
        runs = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                runs[name].append(measure(command))
        for name, of in runs.items():
            medians = {key: statistics.median(run[key] for run in of) for key in ("first_ns", "one_thread_ns", "two_threads_ns")}
            results.append({"objects": objects, "command": name, **medians})
            print(f"{objects:7}  {name:10} {medians['first_ns'] / 1000:9.1f} {medians['one_thread_ns'] / 1000:12.2f} "
                  f"{medians['two_threads_ns'] / 1000:13.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        sys.exit(f"error: `{shown}` ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def build(count):
    """The main object, an archive of `count` frame objects, and the native executable of both."""
    directory = ROOT / "target" / "bench-throws" / str(count)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "table.inc").write_text("".join(f"FRAME({number:05})\n" for number in range(count)))
    flags = ["-O2", "-fPIC", "-std=c++17", f"-I{SOURCES}", f"-I{directory}", "-c"]
    run("clang++-22", *flags, SOURCES / "main.cpp", "-o", directory / "main.o")
    run("clang++-22", *flags, SOURCES / "frame.cpp", "-o", directory / "frame.o")
    template = (directory / "frame.o").read_bytes()
    if template.count(PLACEHOLDER) != 1:
        sys.exit(f"error: the frame's object names {PLACEHOLDER.decode()} {template.count(PLACEHOLDER)} times, not once")
    names = []
    for number in range(count):
        names.append(f"f{number:05}.o")
        (directory / names[-1]).write_bytes(template.replace(PLACEHOLDER, b"frame_%05d" % number))
    archive = directory / "libframes.a"
    archive.unlink(missing_ok=True)
    (directory / "members").write_text("\n".join(names))
    run("llvm-ar-22", "rcs", archive, "@members", cwd=directory)
    native = directory / "native"
    run("clang++-22", directory / "main.o", archive, "-pthread", "-o", native)
    return str(directory / "main.o"), str(archive), str(native)


def run(*command, cwd=None):
    subprocess.run([str(word) for word in command], check=True, cwd=cwd)


if __name__ == "__main__":
    main()
