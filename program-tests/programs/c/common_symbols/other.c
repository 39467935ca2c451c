int counter;
int buffer[1000];
int initialised = 42;
__attribute__((aligned(64))) char aligned;
void bump(void) { counter++; }
int *whole_buffer(int *count) {
  *count = sizeof buffer / sizeof *buffer;
  return buffer;
}
