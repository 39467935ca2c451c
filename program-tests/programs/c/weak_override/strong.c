const char *who(void) { return "the strong one, from strong.c"; }
int variable = 2;
