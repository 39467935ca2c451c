enum which { MINE, THEIRS, LIBC, LIBM, INLINED };
int mine(int x);
int theirs(int x);
extern const char *const constant;
const char *constant_address(void);
void (*address_of(enum which which))(void);
inline int inlined(int x) { return x + 4; }
