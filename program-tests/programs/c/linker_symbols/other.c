extern char end[] __attribute__((weak)), data_start[] __attribute__((weak)), __executable_start[] __attribute__((weak));
static int variable = 5, zeroes[100];
int *other_variable(void) { return &variable; }
int *other_zeroes(void) { return zeroes; }
int weak_ends(void) { return (end != 0) | (data_start != 0) << 1 | (__executable_start != 0) << 2; }
