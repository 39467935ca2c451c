#include "registered.h"

__attribute__((section("registered"), used)) static int in_third = 1;
__attribute__((constructor)) static void start(void) { say("third.c"); }
__attribute__((constructor(150))) static void early(void) { say("third.c 150"); }
__attribute__((destructor)) static void end(void) { say("third.c ends"); }
