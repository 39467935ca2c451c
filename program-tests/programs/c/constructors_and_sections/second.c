#include "registered.h"

__attribute__((constructor)) static void start(void) { say("second.c"); }
__attribute__((constructor(150))) static void early(void) { say("second.c 150"); }
__attribute__((destructor)) static void end(void) { say("second.c ends"); }
