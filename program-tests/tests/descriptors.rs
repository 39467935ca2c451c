//! A program does with descriptors what it likes: it has functions compiled all the same, and finds no number taken. Compared with native twins.

use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{bitcode, linked};
use uruk_tests::process::{Input, Outcome, run};
use uruk_tests::uruk::uruk;

const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/resource.h>
    #include <unistd.h>
    static volatile int one = 1;
    __attribute__((noinline)) static int three(void) { return 3 * one; }
    __attribute__((noinline)) static int five(void) { return 5 * one; }
    __attribute__((noinline)) static int seven(void) { return 7 * one; }
    static void *shows(void *file) { printf("%d: %d\n", *(int *)file, five()); return NULL; }
    static void replace(int file) { for (int i = file + 1; i < 1024; i++) dup2(file, i); }
    int main(int argc, char **argv) {
        const char *way = argv[1];
        struct rlimit few = {16, 16};
        int ends[2], file, own[2] = {-1, -1};
        pthread_t thread;
        if (!strcmp(way, "closefrom")) closefrom(3);
        if (!strcmp(way, "range")) close_range(3, ~0U, 0);
        if (!strcmp(way, "all")) { for (int i = 0; i < 2000; i++) if (i != 1) close(i); }
        if (!strcmp(way, "limit")) setrlimit(RLIMIT_NOFILE, &few);
        if (!strcmp(way, "file")) replace(open("/dev/null", O_RDWR));
        if (!strcmp(way, "pipe")) { pipe(own); replace(own[1]); }
        if (!strcmp(way, "fill")) while (open("/dev/null", O_RDONLY) >= 0) {}
        int sum = three();
        file = open("/dev/null", O_RDONLY);
        pthread_create(&thread, NULL, shows, &file);
        pthread_join(thread, NULL);
        if (own[0] >= 0) {
            char byte;
            fcntl(own[0], F_SETFL, O_NONBLOCK);
            printf("in the pipe: %d\n", (int)read(own[0], &byte, 1));
        }
        if (!strcmp(way, "fault")) { closefrom(3); fflush(stdout); abort(); }
        if (!strcmp(way, "leave")) { closefrom(3); fflush(stdout); pthread_exit(NULL); }
        printf("%d\n", sum + seven());
        return 4;
    }"#;

fn outcome(command: &mut Command) -> Outcome {
    run(command, &Input::default(), Duration::from_secs(60)).expect("it can be started")
}

#[test]
fn the_files_of_a_cache_are_not_the_programs() {
    let native = linked("descriptors.c", PROGRAM, &["-O1"], "descriptors").expect("it links");
    let program = bitcode("descriptors.c", PROGRAM).expect("it compiles");
    let cache = std::env::temp_dir().join(format!("uruk-descriptors-{}", std::process::id()));
    for way in ["none", "closefrom", "range", "all", "limit", "file", "pipe", "none"] {
        let expected = outcome(Command::new(&native).arg(way));
        for mode in [&["--lazy"][..], &[]] {
            let mut command = Command::new(uruk());
            command.arg("run").args(mode).arg("--cache").arg(&cache).arg(&program).arg("--").arg(way);
            let ours = outcome(&mut command);
            let stderr = String::from_utf8_lossy(&ours.stderr);
            assert_eq!(
                (ours.end, &ours.stdout),
                (expected.end, &expected.stdout),
                "{way} {mode:?}: {stderr}"
            );
        }
    }
    std::fs::remove_dir_all(&cache).expect("it was made");
}

#[test]
fn the_channel_of_an_executor_is_not_the_programs() {
    let native = linked("descriptors.c", PROGRAM, &["-O1"], "descriptors").expect("it links");
    let program = bitcode("descriptors.c", PROGRAM).expect("it compiles");
    for way in ["none", "closefrom", "range", "all", "limit", "file", "pipe", "fill", "fault", "leave"] {
        let expected = outcome(Command::new(&native).arg(way));
        let tiered = &["--executor", "--tiered", "--tier-threshold=1", "--tier-delay=0"][..];
        for mode in [&["--executor"][..], &["--executor", "--lazy"], tiered, &["--lazy"]] {
            let ours = outcome(Command::new(uruk()).arg("run").args(mode).arg(&program).arg("--").arg(way));
            let stderr = String::from_utf8_lossy(&ours.stderr);
            assert_eq!(
                (ours.end, &ours.stdout),
                (expected.end, &expected.stdout),
                "{way} {mode:?}: {stderr}"
            );
        }
    }
}
