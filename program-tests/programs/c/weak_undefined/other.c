int present(void) { return 5; }
int force(void) { return 0; }
