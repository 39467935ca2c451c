__attribute__((weak)) const char *who(void) { return "the weak one"; }
__attribute__((weak)) const char *lonely(void) { return "only the weak one exists"; }
__attribute__((weak)) int variable = 1;
const char *(*who_seen_by_weak(void))(void) { return who; }
void unused_strong(void);
