#include "turn.h"

__attribute__((constructor(101))) static void first(void) { say("early 101 in early.c"); }
__attribute__((constructor)) static void plain(void) { in_turn(0, "early.c without a priority"); }
__attribute__((destructor)) static void plain_end(void) { in_turn_at_end(0, "early.c destructor"); }
__attribute__((destructor(150))) static void end(void) { say("early 150 destructor"); }
