static int counter = 102;
static const char *name(void) { return "second"; }
int second_counter(void) { return ++counter; }
const char *second_name(void) { return name(); }
