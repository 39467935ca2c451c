#!/usr/bin/env python3
"""Compares `uruk run` with LLVM's `lli` on the same bitcode, from start to exit.

Both do the same LLVM work: no IR passes, code generation at O2 (`lli` takes no other level with its ORC engine). The
bitcode is what clang -O2 made; programs of several modules are given to `lli` with --extra-module. Runs alternate
(lli, -j1, -j2, lli, -j1, ...), so that a machine that warms up or is shared slows all of them alike, and ratios are
medians of the ratios of neighbouring runs. A run whose output or exit code differs from the others ends the comparison.

    scripts/compare-lli.py                       all programs, 7 rounds, a table
    scripts/compare-lli.py --rounds 15 lua zstd  some of them
    scripts/compare-lli.py --json results.json   also as JSON
    scripts/compare-lli.py --lazy                the same with `lli -jit-kind=orc-lazy`, `--lazy` and `--tiered` besides, at -O0:
                                                 CPU times as a table. `lli` has only O2 for its eager engine.

Memory is the peak resident size and CPU time the user and system time that wait4 reports.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "program-tests" / "programs"


@dataclasses.dataclass
class Program:
    name: str
    own: list  # files below program-tests/programs
    library: str | None = None  # a name that program-sources knows
    flags: list = dataclasses.field(default_factory=list)
    arguments: list = dataclasses.field(default_factory=list)
    exit_code: int = 0


ALL = [
    Program("sqlite", ["sqlite/session.c"], "sqlite"),
    Program("lua", ["lua/main.c"], "lua", arguments=[str(PROGRAMS / "lua" / "script.lua")], exit_code=1),
    Program("zstd", ["zstd/roundtrip.c"], "zstd"),
    Program("regex", ["cxx/regular_expressions.cpp"], flags=["-std=c++17"]),
    Program("containers", ["cxx/containers.cpp"], flags=["-std=c++20"]),
]
# Besides, where lazy runs are compared.
LAZY = [
    Program("functional", ["cxx/functional.cpp"], flags=["-std=c++20"]),
    Program("nested_exceptions", ["cxx/nested_exceptions.cpp"], flags=["-std=c++20"]),
    Program("coroutines", ["cxx/coroutines.cpp"], flags=["-std=c++20"]),
    Program("callbacks", ["c/callbacks.c"]),
    Program("switches", ["c/switches.c"]),
]


@dataclasses.dataclass
class Run:
    wall_s: float
    cpu_s: float
    peak_kib: int


def main():
    options = parse_options()
    uruk = options.uruk or os.environ.get("URUK_BIN") or ROOT / "target" / "release" / "uruk"
    if not pathlib.Path(uruk).is_file():
        sys.exit(f"error: no `uruk` at {uruk}; build it with `cargo build --release -p uruk --features cli`, or set URUK_BIN")
    programs = ALL + LAZY if options.lazy else ALL
    chosen = [program for program in programs if not options.programs or program.name in options.programs]
    results = []
    if options.lazy:
        names = ["program", "`lli`, s", "`lli` lazy", "`-O0`", "`--lazy`", "`--tiered`", "`--lazy` of `-O0`"]
        print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
        for program in chosen:
            compare_lazy(program, compile_modules(program, options.build), str(uruk), options)
        return
    for program in chosen:
        modules = compile_modules(program, options.build)
        results.append(compare(program, modules, str(uruk), options))
        print_result(results[-1])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "programs": results}, indent=2) + "\n")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [program.name for program in ALL + LAZY]
    parser.add_argument("programs", nargs="*", choices=[[], *names], metavar="PROGRAM", help="which programs: " + ", ".join(names))
    parser.add_argument("--lazy", action="store_true", help="compare engines that compile what is called")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command (default 7)")
    parser.add_argument("--uruk", help="the uruk command (default: URUK_BIN, else target/release/uruk)")
    parser.add_argument("--lli", default="lli-22", help="the lli command (default lli-22)")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "target" / "compare-lli", help="where bitcode is kept")
    return parser.parse_args()


def compile_modules(program, directory):
    """Bitcode of each file, compiled unless it is newer than its source already."""
    files = [PROGRAMS / file for file in program.own]
    flags = list(program.flags)
    if program.library:
        files += map(pathlib.Path, program_sources(program.library, "--files"))
        flags += program_sources(program.library, "--flags")
    directory = directory / program.name
    directory.mkdir(parents=True, exist_ok=True)
    modules = []
    for index, file in enumerate(files):
        module = directory / f"{index:02}-{file.stem}.bc"
        if not module.exists() or module.stat().st_mtime < file.stat().st_mtime:
            compiler = "clang++-22" if file.suffix == ".cpp" else "clang-22"
            subprocess.run([compiler, "-O2", "-w", "-emit-llvm", *flags, "-c", file, "-o", module], check=True)
        modules.append(str(module))
    return modules


def program_sources(library, what):
    command = ["cargo", "run", "--quiet", "-p", "uruk-tests", "--bin", "program-sources", "--", library, what]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def compare(program, modules, uruk, options):
    engine = [uruk, "run", "--passes", "none", "-O2"]
    extra = [f"--extra-module={module}" for module in modules[1:]]
    arguments = ["--", *program.arguments] if program.arguments else []
    commands = {
        "lli": [options.lli, *extra, modules[0], *program.arguments],
        "uruk -j1": [*engine, "-j1", *modules, *arguments],
    }
    if len(modules) > 1:
        commands["uruk -j2"] = [*engine, "-j2", *modules, *arguments]
    runs = {name: [] for name in commands}
    expected = None
    for _ in range(options.rounds):
        for name, command in commands.items():
            run, output = measure(command, program.exit_code)
            expected = output if expected is None else expected
            if output != expected:
                sys.exit(f"error: {name} printed something else than lli did for {program.name}:\n{output.decode()[-2000:]}")
            runs[name].append(run)
    return {
        "program": program.name,
        "modules": len(modules),
        "rounds": options.rounds,
        "commands": {name: summary(of, runs["lli"]) for name, of in runs.items()},
    }


def compare_lazy(program, modules, uruk, options):
    """Prints a row: CPU time as a ratio of lli's. What prints something else than that, or ends otherwise, has failed."""
    extra = [f"--extra-module={module}" for module in modules[1:]]
    arguments = ["--", *program.arguments] if program.arguments else []
    engine = [uruk, "run", "-O0", "-j1"]
    commands = {
        "lli": [options.lli, *extra, modules[0], *program.arguments],
        "lli lazy": [options.lli, "--jit-kind=orc-lazy", *extra, modules[0], *program.arguments],
        "uruk -O0": [*engine, *modules, *arguments],
        "--lazy": [*engine, "--lazy", *modules, *arguments],
        "--tiered": [uruk, "run", "-j1", "--tiered", *modules, *arguments],
    }
    runs = {name: [] for name in commands}
    expected = None
    for _ in range(options.rounds):
        for name, command in commands.items():
            if runs[name] is None:
                continue
            run, output = measure(command, program.exit_code, may_fail=name.startswith("lli"))
            expected = output if expected is None else expected
            if run is None or output != expected:
                if not name.startswith("lli"):
                    sys.exit(f"error: {name} printed something else for {program.name}:\n{output.decode()[-2000:]}")
                runs[name] = None
                continue
            runs[name].append(run.cpu_s)
    def ratio(name, base):
        pairs = zip(runs[name] or [], runs[base])
        return f"{statistics.median(a / b for a, b in pairs):.2f}" if runs[name] else "fails"

    ratios = [ratio(name, "lli") for name in commands if name != "lli"]
    cells = [program.name, f"{statistics.median(runs['lli']):.3f}", *ratios, ratio("--lazy", "uruk -O0")]
    print("| " + " | ".join(cells) + " |", flush=True)


def measure(command, exit_code, may_fail=False):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=directory)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        if process.returncode != exit_code and may_fail:
            return None, stdout.read()
        if process.returncode != exit_code:
            sys.exit(f"error: exit code {process.returncode}, expected {exit_code}: {' '.join(command)}\n{stderr.read().decode()[-2000:]}")
        return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss), stdout.read()


def summary(runs, base):
    def spread(values):
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    def ratio(field):
        return statistics.median(getattr(run, field) / getattr(other, field) for run, other in zip(runs, base))

    return {
        "wall_s": spread([run.wall_s for run in runs]),
        "cpu_s": spread([run.cpu_s for run in runs]),
        "peak_mib": spread([run.peak_kib / 1024 for run in runs]),
        "ratio_to_lli": {"wall": ratio("wall_s"), "cpu": ratio("cpu_s"), "peak": ratio("peak_kib")},
    }


def print_result(result):
    plural = "" if result["modules"] == 1 else "s"
    print(f"{result['program']} ({result['modules']} module{plural}, {result['rounds']} rounds)")
    print(f"  {'':10} {'wall s: median':>14} {'min':>7} {'max':>7}   {'cpu s':>7}   {'peak MiB':>8}   "
          f"{'wall':>5} {'cpu':>5} {'peak':>5}  of lli's")
    for name, of in result["commands"].items():
        wall, ratios = of["wall_s"], of["ratio_to_lli"]
        print(f"  {name:10} {wall['median']:14.3f} {wall['min']:7.3f} {wall['max']:7.3f}   {of['cpu_s']['median']:7.3f}   "
              f"{of['peak_mib']['median']:8.1f}   {ratios['wall']:5.2f} {ratios['cpu']:5.2f} {ratios['peak']:5.2f}")
    print(flush=True)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "commit": commit}


if __name__ == "__main__":
    main()
