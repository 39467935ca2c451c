//! The parts of help that are not of one option: headings, and examples of each verb.

/// Options of `uruk run` that say which program runs.
pub(crate) const WHAT: &str = "What runs";
/// Options that say how code is made.
pub(crate) const HOW: &str = "How it is compiled";
/// Options that say when code is made.
pub(crate) const WHEN: &str = "When it is compiled";
/// Options of the cache.
pub(crate) const KEPT: &str = "Cache";
/// Options that show what happens.
pub(crate) const SEEN: &str = "Seen from outside";

pub(crate) const EXAMPLES: &str = "\
Examples:
  uruk hello.c                              compile and run a C file; `uruk run hello.c` in full
  uruk run --tiered --cache ~/.cache/uruk db.bc   start soon, and sooner the next time
  uruk run --dashboard --lazy app.bc        watch it on a page in the browser
  uruk image build -o db.uim db.bc          compile and link ahead; then: uruk db.uim
  uruk repl                                 type a program
  uruk help run                             the options of a verb, and more examples

Exit codes: the program's own; 1 if it cannot be made to run; 2 for wrong usage.";

pub(crate) const RUN_EXAMPLES: &str = "\
Examples:
  uruk run a.bc b.bc -- one two             two modules, two arguments
  uruk run -O0 --entry start main.o libx.a  an object and an archive, another entry
  clang -c -emit-llvm -o - a.c | uruk run - from standard input; a source: uruk run -x c -
  uruk run -j2 --stats db.bc                two threads compile; how long each stage took
  uruk run --stats=path db.bc               which units held the start up
  uruk run --cache ~/.cache/uruk db.bc      compile once; the second start finds it
  uruk run --tiered db.bc                   compile what is called; better, what is called often
  uruk run --lazy --record-order calls db.bc   note which functions are called; next time, ahead:
  uruk run --lazy --speculate calls db.bc
  uruk run --lazy --trace-compile app.trace app.bc   note what is compiled, for `uruk precompile`
  uruk run --trace t.json app.bc            then open t.json in ui.perfetto.dev
  uruk run --dump out app.c                 what LLVM made of it, step by step, is in out/
  uruk run --why-after 5 app.bc             if it takes five seconds to start, what it waits for
  uruk run --backtrace app.bc               if it crashes, in which functions

With gdb, and with perf:
  gdb -ex 'set breakpoint pending on' -ex 'break app.c:4' -ex run \\
      --args uruk run --debugger -O0 app.c
  perf record -k mono uruk run --perf jitdump app.c
  perf inject --jit -i perf.data -o jit.data; perf report -i jit.data

Exit codes: the program's own; 1 if it cannot be made to run; 2 for wrong usage.";

pub(crate) const TRACE_EXAMPLES: &str = "\
Examples:
  uruk trace path 4711                        which units held process 4711 up, also after it was killed
  uruk trace dump last | tail                 the last that happened in the newest program that runs or was killed
  uruk run --record app.rec app.bc            record everything, however it ends
  uruk trace path app.rec                     which units held the slowest lookup up
  uruk trace units app.rec                    which unit took how long
  uruk trace dump app.rec | tail              the last that happened
  uruk trace dump --format json app.rec       an object a line

Exit codes: 0; 1 if there is no recording; 2 for wrong usage.";

pub(crate) const REPL_EXAMPLES: &str = "\
Examples:
  uruk repl                                 type a program; :help helps
  uruk repl -O2 mandelbrot.k                run one
  echo 'extern sin(x) sin(1)' | uruk repl   answer a line";

pub(crate) const OPT_EXAMPLES: &str = "\
Examples:
  uruk opt app.ll                                   as `uruk run` would optimize it, to standard output
  uruk opt -O1 --print-stages                       what each of the seven stages runs at O1
  uruk opt -O2 --stop-after loop app.bc -o half.ll  what the passes over loops have made of it
  uruk opt --replace vectorization= app.ll          everything but vectorization
  uruk opt --after scalar=gvn,instcombine app.ll    two passes more, over each function

Stages: early-simplification and cleanup take passes over modules; early-optimization, loop, scalar, vectorization and
intrinsic-lowering take passes over functions.
Exit codes: 0; 1 if the module cannot be read, optimized or written; 2 for wrong usage.";

pub(crate) const IMAGE_EXAMPLES: &str = "\
Examples:
  uruk image build -o db.uim db.bc shell.c                compile and link ahead
  uruk image run db.uim -- one two                        run it, with two arguments; so does `uruk db.uim -- one two`
  uruk image build --cpu x86-64-v3 -j8 --parts 64 --cache ~/.cache/uruk big.bc   for processors with AVX2; 8 threads
  uruk image info --imports db.uim                        what it is, and what it refers to
  uruk image build --package -o app.uim a.bc b.bc         each file is a unit that is validated alone
  uruk image run app.uim a.bc b.bc                        with its sources: those that have changed are compiled
  uruk image info --rejected app.uim a.bc b.bc            which these are

Exit codes: of `run` those of the program; 0; 1 if a file cannot be compiled, linked, read or written; 2 for wrong usage.";

pub(crate) const PRECOMPILE_EXAMPLES: &str = "\
Examples:
  uruk run --lazy --trace-compile app.trace app.bc        note what is compiled; several runs may add to it
  uruk precompile app.trace app.bc --cache ~/.cache/uruk  on another machine of the kind, or after an edit
  uruk run --lazy --cache ~/.cache/uruk app.bc            compiles nothing of it

A trace is known by its contents; a file of --record-order is taken as one. What no file has is counted and passed over.
Exit codes: 0; 1 if a file cannot be read, something is missing or the cache cannot be written; 2 for wrong usage.";

pub(crate) const CACHE_EXAMPLES: &str = "\
Examples:
  uruk cache stats --cache ~/.cache/uruk                  what is in it
  uruk cache verify                                       the one that URUK_CACHE names
  uruk cache gc --max-size 512M --max-age 2w              keep it small
  uruk cache clear                                        begin anew; running programs are not disturbed

Exit codes: 0; 1 if an entry is damaged (verify), or the cache cannot be opened or written; 2 for wrong usage.";

pub(crate) const PAGE_EXAMPLES: &str = "\
Examples:
  uruk page run.rec                          then open the address that it prints
  URUK_DASHBOARD_TOKEN=$(openssl rand -hex 16) uruk page --listen 0.0.0.0:7070 --host build.example.com run.rec
  ssh -L 7070:localhost:7070 build.example.com uruk page --listen 127.0.0.1:7070 run.rec   without a token

Exit codes: 0 after control-C; 1 if there is no recording or the address cannot be had; 2 for wrong usage.";

pub(crate) const TOP_EXAMPLES: &str = "\
Examples:
  uruk top 4711               the process of that number, while it runs or after it was killed
  uruk top --once run.rec     the figures of a recording as text

Exit codes: 0; 1 if there is no recording or there is no terminal; 2 for wrong usage.";
