#!/usr/bin/env python3
"""Measures an unmodified PostgreSQL with LLVM's ORC and with Uruk under it, and compares its regression suite.

The server is Debian's source package, built with LLVM 22 below target/postgres: that takes twelve minutes, once. Four
servers run on the same data: one as it is, one with liburuk_orc.so preloaded ("plain"), one with its cache too, and one that also puts passes
off ("defer"). Queries go to all in turn, with every threshold of the JIT at 0, so that each is compiled, inlined and optimized. Times are milliseconds of processor time as
EXPLAIN ANALYZE tells them; a small library makes the servers' clock count that.

    scripts/postgres.py build              the server, the library, a database
    scripts/postgres.py measure            the table of queries, transactions a second, memory
    scripts/postgres.py measure --rounds 9 --queries short,report
    scripts/postgres.py regress            the regression suite: with jit=off, then twice with kept code, and twice with passes put off too; results
                                           must be the same
    scripts/postgres.py regress --tests test_setup,select,case
    scripts/postgres.py                    all of these

A server refuses to run as root; then --user says as whom [default: nobody].
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import pwd
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUPPORT = ROOT / "scripts" / "postgres"
BUILD = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "postgres"
INSTALLED = BUILD / "installed"
PACKAGE = "postgresql-15"
LLVM_CONFIG, CLANG = "/usr/bin/llvm-config-22", "/usr/bin/clang-22"

JIT = {"jit": "on", "jit_above_cost": "0", "jit_inline_above_cost": "0", "jit_optimize_above_cost": "0"}
SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "autovacuum": "off",
    "max_parallel_workers_per_gather": "0",
    "shared_buffers": "512MB",
}

QUERIES = {
    "report": """select is_returned, status, sum(quantity), sum(price), sum(price * (1 - discount)),
        sum(price * (1 - discount) * (1 + tax)), avg(quantity), avg(price), avg(discount), count(*)
        from sales where shipped <= date '1998-09-02' group by 1, 2 order by 1, 2""",
    "filter": """select sum(price * discount) from sales where shipped >= date '1994-01-01' and shipped < date '1995-01-01'
        and discount between 0.05 and 0.07 and quantity < 24""",
    "wide": """select sum(a + b * c), sum(a * b - c), sum(a % 7 + b % 5), sum(case when a > 50 then b else c end),
        sum(case when b < 20 then a when b < 40 then c else e end), max(a * 3 + b * 5 + c * 7), min(d * a - b),
        sum((a + 1) * (b + 2) * (c + 3)), sum(d * d), avg(d + a + b + c), count(*) filter (where a between 10 and 20),
        count(*) filter (where b in (1, 5, 9, 33)), sum(abs(a - b)), sum(greatest(a, b, c)), sum(least(a, b, c)), sum(a & b),
        sum(a | c), sum((a < b)::int), sum((d > 1000)::int), sum(e * a) from sales where (a + b + c) % 3 = 0 and d > 10 and e <> 5""",
    "parts": """select count(*), sum(a * b), sum(c * a), max(a + b), sum(case when a > b then a else b end)
        from parted where a < 90 and b > 3 and c * 2 > a""",
    "short": "select x + y, x * y, case when x > 0 then y else x end from one where x <> y",
}
PHASES = ["Inlining", "Optimization", "Emission", "Total"]


class Failure(Exception):
    """A step failed: its message says which, and where its output is."""


def say(text):
    print(f"postgres: {text}", file=sys.stderr, flush=True)


def run(step, command, log=None, **options):
    """Runs a step whose output goes to a log, and which must succeed."""
    log = log or BUILD / f"{step.replace(' ', '-')}.log"
    with open(log, "ab") as output:
        done = subprocess.run([str(part) for part in command], stdout=output, stderr=output, check=False, **options)
    if done.returncode != 0:
        raise Failure(f"{step} ended with {done.returncode}; its output is {log}")


def source():
    """The source as its authors have it, without Debian's patches: one of them moves the library's directory."""
    found = sorted(path for path in BUILD.glob("postgresql-*/") if path.is_dir())
    if found:
        return found[0]
    apt = BUILD / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    # Sources of the machine stay as they are.
    (apt / "sources.list").write_text("deb-src http://deb.debian.org/debian bookworm main\n")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "-";\n'
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\n'
    )
    environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf")}
    say(f"fetching the source of {PACKAGE}")
    run("fetch", ["apt-get", "update"], env=environment)
    run("fetch", ["apt-get", "source", "--download-only", PACKAGE], env=environment, cwd=BUILD)
    archive = next(BUILD.glob("*.orig.tar.*"))
    run("unpack", ["tar", "xf", archive], cwd=BUILD)
    return next(path for path in BUILD.glob("postgresql-*/") if path.is_dir())


def build(_):
    """The server, the library and the clock; what is there stays."""
    BUILD.mkdir(parents=True, exist_ok=True)
    tree = source()
    if not (INSTALLED / "bin" / "pg_ctl").exists():
        say("building the server: about twelve minutes")
        flags = [f"--prefix={INSTALLED}", "--with-llvm", f"LLVM_CONFIG={LLVM_CONFIG}", f"CLANG={CLANG}", "--without-readline"]
        run("configure", [tree / "configure", *flags, "CFLAGS=-O2 -g1"], cwd=tree)
        jobs = f"-j{os.cpu_count()}"
        run("make", ["make", "-s", jobs], cwd=tree)
        run("make", ["make", "-s", jobs, "-C", "src/test/regress"], cwd=tree)
        run("make", ["make", "-s", jobs, "-C", "contrib/spi", "install"], cwd=tree)
        run("make", ["make", "-s", "install"], cwd=tree)
    say("building liburuk_orc.so")
    subprocess.run(["cargo", "build", "--release", "-p", "uruk-orc"], cwd=ROOT, check=True)
    run("clock", ["cc", "-O2", "-shared", "-fPIC", "-o", BUILD / "cpu_clock.so", SUPPORT / "cpu_clock.c"])


def library():
    return BUILD.parent / "release" / "liburuk_orc.so"


@dataclasses.dataclass
class Server:
    """A server that runs, reached through a socket in its directory."""

    label: str
    directory: pathlib.Path
    user: str

    def client(self, program, *arguments, sql=None, settings=None):
        options = " ".join(f"-c {name}={value}" for name, value in (settings or {}).items())
        done = subprocess.run(
            [str(INSTALLED / "bin" / program), "-h", str(self.directory), *arguments, "postgres"],
            input=sql, text=True, capture_output=True, check=False, timeout=1200,
            env=os.environ | {"PGOPTIONS": options}, **as_user(self.user),
        )  # fmt: skip
        if done.returncode != 0 or "ERROR" in done.stderr:
            raise Failure(f"{self.label}: {program}: {done.stderr.strip()[:800]}")
        return done.stdout

    def query(self, sql, settings=None):
        return self.client("psql", "-qAtX", sql=sql, settings=settings)

    def explained(self, sql, times):
        """EXPLAIN ANALYZE of a query, `times` in one new backend."""
        text = self.query(f"explain (analyze, format json) {sql};" * times, JIT)
        decoder, at, plans = json.JSONDecoder(), 0, []
        while at < len(text):
            plan, end = decoder.raw_decode(text, at)
            plans.append(plan[0])
            at = end + len(text[end:]) - len(text[end:].lstrip())
        return plans


def as_user(user):
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def serving(label, data, user, preload, environment):
    """A server on a database, until the block ends."""
    directory = data.parent / f"{label}-run"
    directory.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(directory, user)
    settings = SETTINGS | {"unix_socket_directories": f"'{directory}'"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    control = [str(INSTALLED / "bin" / "pg_ctl"), "-D", str(data), "-l", str(directory / "log"), "-w"]
    environment = os.environ | environment | {"LD_PRELOAD": ":".join(map(str, preload))}
    # The server keeps what it is given as standard output, so that is no pipe.
    with open(directory / "control", "wb") as output:
        started = subprocess.run(
            [*control, "-o", options, "start"], env=environment, stdout=output, stderr=output, check=False, **as_user(user)
        )
        if started.returncode != 0:
            raise Failure(f"the server {label} does not start; its log is {directory / 'log'}")
        try:
            yield Server(label, directory, user)
        finally:
            subprocess.run([*control, "-m", "fast", "stop"], stdout=output, stderr=output, check=False, **as_user(user))


@contextlib.contextmanager
def databases(user, labels):
    """A folder of the server's user with a database for each label, with the tables."""
    with tempfile.TemporaryDirectory(prefix="uruk-postgres-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o711)
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        first = folder / labels[0]
        say("making the database")
        run("initdb", [INSTALLED / "bin" / "initdb", "-D", first, "-A", "trust", "--no-locale", "-E", "UTF8"],
            env=os.environ | {"LC_ALL": "C"}, **as_user(user))  # fmt: skip
        with serving(labels[0], first, user, [], {}) as server:
            server.query((SUPPORT / "tables.sql").read_text())
        for label in labels[1:]:
            run("copy", ["cp", "-a", first, folder / label])
        yield folder


def uruk_environment(folder, name, user):
    cache = folder / name
    cache.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(cache, user)
    return {"URUK_ORC_CACHE": str(cache)}


def measure(args):
    names = args.queries.split(",") if args.queries else list(QUERIES)
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise Failure(f"no query is called {unknown[0]}; there are {', '.join(QUERIES)}")
    clock = BUILD / "cpu_clock.so"
    labels = ["orc", "plain", "cache", "defer"]
    with databases(args.user, labels) as folder, contextlib.ExitStack() as running:
        start = lambda label, preload, environment: running.enter_context(
            serving(label, folder / label, args.user, preload, environment)
        )
        environments = {label: uruk_environment(folder, f"{label}-code", args.user) for label in labels[2:]}
        environments["defer"]["URUK_ORC_DEFER"] = "1"
        servers = [start("orc", [clock], {})]
        servers += [start(label, [library(), clock], environments.get(label, {})) for label in labels[1:]]
        rows = {}
        for round_ in range(args.rounds):
            say(f"round {round_ + 1} of {args.rounds}")
            for name in names:
                for server in servers:
                    # The first is the new backend's own start; the cache is warm from the second round on.
                    rows.setdefault((name, server.label), []).extend(server.explained(QUERIES[name], 3)[1:])
        table(names, labels, rows)
        del servers[1]
        transactions(servers)
        memory(servers)


def table(names, labels, rows):
    print(f"{'query':8}{'functions':>10}  {'':6}" + "".join(f"{phase.lower():>14}" for phase in PHASES) + f"{'code':>10}")
    for name in names:
        totals, codes = {}, {}
        for label in labels:
            plans = rows[name, label]
            median = lambda value: statistics.median(map(value, plans))
            phases = [median(lambda plan, phase=phase: plan["JIT"]["Timing"][phase]) for phase in PHASES]
            totals[label] = phases[-1]
            codes[label] = median(lambda plan: plan["Execution Time"] - plan["JIT"]["Timing"]["Total"])
            functions = plans[0]["JIT"]["Functions"]
            print(f"{name:8}{functions:10}  {label:6}" + "".join(f"{value:14.1f}" for value in phases) + f"{codes[label]:10.1f}")
        for label in labels[1:]:
            ratios = f"{totals['orc'] / totals[label]:14.2f}{codes['orc'] / codes[label]:10.2f}"
            print(f"{'':20}orc / {label:6}{'':36}{ratios}")


def transactions(servers):
    print("\ntransactions a second, 4 clients:")
    for name, count in (("short", 100), ("parts", 8)):
        for connection in ("kept", "new"):
            figures = {}
            for server in servers:
                with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
                    script.write(QUERIES[name].replace("\n", " ") + ";\n")
                    script.flush()
                    os.chmod(script.name, 0o644)
                    arguments = ["-n", "-c", "4", "-j", "2", "-t", str(count), "-f", script.name]
                    told = server.client("pgbench", *arguments, *(["-C"] if connection == "new" else []), settings=JIT)
                figures[server.label] = float(re.search(r"tps = ([\d.]+)", told)[1])
            print(f"  {name:6} {connection:4} connection: {beside(figures)}")


def memory(servers):
    print("\nresident memory of a backend after 1,200 short queries, kB:")
    # Nothing is compiled for the question.
    status = r"set jit = off; select (regexp_match(pg_read_file('/proc/self/status'), 'VmRSS:\s+(\d+)'))[1];"
    sizes = {server.label: int(server.query(f"{QUERIES['short']};" * 1200 + status, JIT).split()[-1]) for server in servers}
    print(f"  {beside(sizes)}")


def beside(figures):
    """Each figure, with its ratio to ORC's."""
    told = [f"{label} {figure:.6g} ({figure / figures['orc']:.2f})" for label, figure in figures.items()]
    return ", ".join(told)


def regress(args):
    tree = source() / "src" / "test" / "regress"
    tests = args.tests.split(",") if args.tests else [f"--schedule={tree / 'parallel_schedule'}"]
    with databases(args.user, ["plain", "uruk", "defer"]) as folder:
        with serving("plain", folder / "plain", args.user, [], {}) as server:
            off = suite(tree, folder, server, "off", tests, {"jit": "off"})
        for label, more in ("uruk", {}), ("defer", {"URUK_ORC_DEFER": "1"}):
            environment = uruk_environment(folder, f"code-{label}", args.user) | {"URUK_ORC_REPORT": "1"} | more
            with serving(label, folder / label, args.user, [library()], environment) as server:
                for state in ("cold", "warm"):
                    before = len(reports(server))
                    on = suite(tree, folder, server, f"{label}-{state}", tests, JIT)
                    tell_of_cache(f"{label}, {state}", reports(server)[before:], folder / f"code-{label}")
                    other = [test for test in sorted(off) if on.get(test) != off[test]]
                    print(f"{label}, {state} cache: {len(off)} tests, {len(other)} with another result than jit=off: {' '.join(other) or 'none'}")
                    sys.stdout.flush()
                    if other and not args.keep_going:
                        raise Failure("the results differ")


def reports(server):
    """The lines that liburuk_orc.so has written to the server's log."""
    lines = (server.directory / "log").read_text(errors="replace").splitlines()
    return [line.removeprefix("uruk: ") for line in lines if line.startswith("uruk: ")]


def tell_of_cache(label, lines, cache):
    hits = sum(line.endswith(": object") for line in lines)
    misses = sum(": no object: " in line for line in lines)
    size = sum(path.stat().st_blocks * 512 for path in cache.rglob("*"))
    share = 100 * hits / max(hits + misses, 1)
    print(f"{label} cache: {hits} hits, {misses} misses ({share:.1f} % hits), {size / 1e6:.0f} MB on disk")
    reasons = collections.Counter(line.split("it has no shape: ")[1] for line in lines if "it has no shape: " in line)
    for reason, count in reasons.most_common(10):
        print(f"  {count} modules without a shape: {reason}")


def suite(tree, folder, server, label, tests, settings):
    """The result of each test of the regression suite."""
    say(f"regression suite, {label}")
    output = folder / f"regress-{label}"
    output.mkdir()
    if os.geteuid() == 0:
        shutil.chown(output, server.user)
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    with open(BUILD / f"regress-{label}.log", "wb") as log:
        subprocess.run(
            [str(tree / "pg_regress"), f"--inputdir={tree}", f"--outputdir={output}", f"--bindir={INSTALLED / 'bin'}",
             f"--dlpath={tree}", f"--host={server.directory}", "--max-connections=3", *tests],
            stdout=log, stderr=log, env=os.environ | {"PGOPTIONS": options}, check=False, **as_user(server.user),
        )  # fmt: skip
    results = {path.stem: path.read_bytes() for path in (output / "results").glob("*.out")}
    if not results:
        raise Failure(f"the regression suite made no results; its output is {BUILD / f'regress-{label}.log'}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="build|measure|regress", help="steps, in this order [default: all]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of `measure` [default: %(default)s]")
    parser.add_argument("--queries", help=f"names with commas between, of {', '.join(QUERIES)}")
    parser.add_argument("--user", default="nobody", help="as whom servers run if you are root [default: %(default)s]")
    parser.add_argument("--tests", help="names of tests of the regression suite with commas between [default: all]")
    parser.add_argument("--keep-going", action="store_true", help="go on if results of the regression suite differ")
    args = parser.parse_args()
    steps = {"build": build, "measure": measure, "regress": regress}
    for step in args.steps or steps:
        if step not in steps:
            parser.error(f"no step is called {step}")
        steps[step](args)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"postgres: {failure}")
