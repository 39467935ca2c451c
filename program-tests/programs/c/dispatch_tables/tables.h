struct link { const char *name; const struct link *next; };
struct shape { const char *name; int (*area)(const struct shape *); int size; };
extern const struct shape *const shapes[];
extern const int numbers[3];
extern const int *const numbers_end;
int multiply(int a, int b), remainder_of(int a, int b);
