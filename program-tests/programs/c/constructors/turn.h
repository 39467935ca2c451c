#include <stdio.h>

void say(const char *text);
void in_turn(int number, const char *text);
void in_turn_at_end(int number, const char *text);
