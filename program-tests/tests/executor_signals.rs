//! `uruk run --executor`: the program is sent what the command is sent, once, and inherits what the command was given.
//!
//! ```text
//!   test                          command, or the native twin
//!     starts ───────────────────▶ prints what it was given, and "ready"
//!     signals to it, or its group ▶ waits for them, and prints each
//!     SIGPWR ───────────────────▶ ends with 9
//! ```

use std::io::{BufRead as _, BufReader, PipeReader, Read as _, pipe};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use uruk_tests::inputs::{bitcode, linked};
use uruk_tests::uruk::uruk;

const PROGRAM: &str = r#"
    #include <errno.h>
    #include <fcntl.h>
    #include <signal.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        sigset_t all;
        siginfo_t info;
        FILE *out = fdopen(9, "w");
        for (int i = 0; i < 9; i++) if (fcntl(i, F_GETFD) >= 0) fprintf(out, "open %d\n", i);
        sigemptyset(&all);
        for (int s = 1; s < 32; s++) {
            struct sigaction found;
            if (sigaction(s, NULL, &found) == 0 && found.sa_handler != SIG_DFL) fprintf(out, "ignored %d\n", s);
            if (s != SIGSEGV && s != SIGBUS) sigaddset(&all, s);
        }
        sigprocmask(SIG_BLOCK, &all, NULL);
        fprintf(out, "children %d, leads its group %d\n", wait(NULL) != -1 || errno != ECHILD, getpgrp() == getpid());
        fputs("ready\n", out);
        fflush(out);
        do {
            sigwaitinfo(&all, &info);
            fprintf(out, "signal %d, code %d, from its parent %d\n", info.si_signo, info.si_code, info.si_pid == getppid());
        } while (info.si_signo != SIGPWR);
        return 9;
    }"#;

/// Starts a command with SIGHUP and SIGPIPE ignored, without a stdin and a stderr, with a pipe as 9.
fn start(command: &[&str]) -> (Child, BufReader<PipeReader>) {
    let (read, write) = pipe().expect("there are descriptors");
    let mut shell = Command::new("/bin/sh");
    // The shell puts its stdout at 9, and becomes the command.
    shell.args(["-c", r#"trap "" HUP PIPE; exec "$@" 9>&1 >/dev/null 0<&- 2>&-"#, "sh"]).args(command);
    let child = shell.process_group(0).stdin(Stdio::null()).stdout(write).spawn().expect("there is a shell");
    (child, BufReader::new(read))
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// All that a command says when it is sent these signals, and its end.
fn said(command: &[&str], signals: &[(bool, Signal)]) -> String {
    let (mut child, mut output) = start(command);
    let mut said = String::new();
    while !said.ends_with("ready\n") {
        assert_ne!(output.read_line(&mut said).expect("it can be read"), 0, "{said}");
    }
    for &(is_group, signal) in signals {
        let sent = if is_group { kill_process_group } else { kill_process }(pid(&child), signal);
        sent.expect("it waits");
    }
    output.read_to_string(&mut said).expect("it can be read");
    let end = child.wait().expect("it ends");
    said + &format!("{:?} {:?}", end.code(), end.signal())
}

#[test]
fn signals_come_to_the_program_once_and_it_inherits_what_the_command_has() {
    let native = linked("signals.c", PROGRAM, &["-O1"], "signals").expect("it links");
    let program = bitcode("signals.c", PROGRAM).expect("it compiles");
    let (native, program) = (native.display().to_string(), program.display().to_string());
    let uruk = uruk().display().to_string();
    let all = [
        Signal::TERM,
        Signal::INT,
        Signal::QUIT,
        Signal::HUP,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TSTP,
    ];
    // The last signal has the highest number: those that wait come in order of these.
    for is_group in [false, true] {
        for signal in all {
            let signals = [(is_group, signal), (false, Signal::POWER)];
            let expected = said(&[&native], &signals);
            for way in [&["--executor"][..], &["--executor", "--lazy"]] {
                let command = [&[&*uruk, "run"], way, &[&*program]].concat();
                assert_eq!(said(&command, &signals), expected, "{way:?} {signal:?} {is_group}");
            }
        }
    }
}

/// The command is the program's process: it stops, goes on and is killed.
#[test]
fn a_command_stops_and_is_killed_with_its_program() {
    let program = bitcode(
        "pause.c",
        "#include <unistd.h>\nint main(void) { write(9, \"ready\\n\", 6); for (;;) pause(); }",
    );
    let program = program.expect("it compiles").display().to_string();
    let uruk = uruk().display().to_string();
    for signal in [Signal::KILL, Signal::TERM, Signal::ABORT] {
        let (mut child, mut output) = start(&[&uruk, "run", "--executor", &program]);
        output.read_line(&mut String::new()).expect("it begins");
        kill_process(pid(&child), Signal::STOP).expect("it runs");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).expect("it is there").contains(") T ") {
            std::thread::yield_now();
        }
        kill_process(pid(&child), Signal::CONT).expect("it runs");
        kill_process(pid(&child), signal).expect("it runs");
        assert_eq!(child.wait().expect("it ends").signal(), Some(signal.as_raw()));
        // The compiler goes with it, and leaves the pipe.
        output.read_to_string(&mut String::new()).expect("its end is read");
    }
}
