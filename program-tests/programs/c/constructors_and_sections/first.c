#include "registered.h"

__attribute__((section("registered"), used)) static int in_first = 1;
__attribute__((constructor)) static void start(void) { say("first.c"); }
__attribute__((constructor(150))) static void early(void) { say("first.c 150"); }
__attribute__((destructor)) static void end(void) { say("first.c ends"); }
