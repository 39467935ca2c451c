int real(int x) { return x * 4; }
extern int other_name(int x) __attribute__((alias("real")));
extern int replaceable(int x) __attribute__((weak, alias("real")));
static int local_name(int x) __attribute__((alias("real")));
int inside(void) { return local_name(3); }
int number = 7;
extern int same_number __attribute__((alias("number")));
