/* Two implementations of one function; who does not ask for a version gets the second. */
int first_version(void) { return 1; }
int second_version(void) { return 2; }
__asm__(".symver first_version, versioned@ONE");
__asm__(".symver second_version, versioned@@TWO");
