static int counter = 11;
static const int constant = 2;
static const char *name(void) { return "first"; }
int first_counter(void) { return ++counter; }
int first_constant(void) { return *(const volatile int *)&constant; }
const char *first_name(void) { return name(); }
