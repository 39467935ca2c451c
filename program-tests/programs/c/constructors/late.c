#include "turn.h"

__attribute__((constructor(200))) static void third(void) { say("late 200 in late.c"); }
__attribute__((constructor(200))) static void fourth(void) { say("late 200 again"); }
__attribute__((constructor)) static void plain(void) { in_turn(1, "late.c without a priority"); }
__attribute__((destructor)) static void plain_end(void) { in_turn_at_end(1, "late.c destructor"); }
__attribute__((destructor(300))) static void end(void) { say("late 300 destructor"); }
