// Two LLJITs of a process have one cache, which is closed with the last of them.
//
// prints: opened by the first
// prints: not by the second
// prints: open for the second
// prints: closed
#include "common.h"
#include <dirent.h>
#include <unistd.h>

// How many files of the cache are open.
static int open_files(void) {
  char path[512], target[512];
  int count = 0;
  DIR *files = opendir("/proc/self/fd");
  for (struct dirent *file; (file = readdir(files));) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", file->d_name);
    ssize_t len = readlink(path, target, sizeof target - 1);
    target[len < 0 ? 0 : len] = 0;
    count += strstr(target, getenv("URUK_ORC_CACHE")) != NULL;
  }
  closedir(files);
  return count;
}

int run(void) {
  LLVMOrcLLJITRef first = create();
  int opened = open_files();
  printf(opened ? "opened by the first\n" : "not opened\n");
  LLVMOrcLLJITRef second = create();
  printf(open_files() == opened ? "not by the second\n" : "again by the second\n");
  check(LLVMOrcDisposeLLJIT(first));
  printf(open_files() == opened ? "open for the second\n" : "closed with the first\n");
  check(LLVMOrcDisposeLLJIT(second));
  printf(open_files() ? "still open\n" : "closed\n");
  return 0;
}
