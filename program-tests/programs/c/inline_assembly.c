//# stdout: sum 30, flags carry 1
//# stdout: cpuid vendor has 12 letters
//# stdout: memory: 7 8
//# stdout: jump: taken
//# stdout: system call: same process
//# stdout: bytes: abc
/* Inline assembly with registers, memory, flags, labels and a string instruction. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int add_carry(int *sum) {
  unsigned char carry;
  unsigned big = 0xffffffff;
  __asm__("addl $1, %0\n\tsetc %1" : "+r"(big), "=r"(carry));
  __asm__("leal (%1,%2), %0" : "=r"(*sum) : "r"(10), "r"(20));
  return carry;
}

static int jump(int value) {
  __asm__ goto("testl %0, %0\n\tjnz %l1" : : "r"(value) : "cc" : taken);
  return 0;
taken:
  return 1;
}

int main(void) {
  int sum, carry = add_carry(&sum), memory[2] = {7, 0};
  unsigned vendor[4] = {0}, leaf = 0;
  long process;
  char to[4] = {0};
  const char *from = "abc";
  char *at = to;
  long count = 3;
  printf("sum %d, flags carry %d\n", sum, carry);
  __asm__ volatile("cpuid" : "+a"(leaf), "=b"(vendor[0]), "=c"(vendor[2]), "=d"(vendor[1]));
  printf("cpuid vendor has %d letters\n", (int)snprintf(NULL, 0, "%.12s", (char *)vendor));
  __asm__ volatile("movl %1, %%eax\n\tincl %%eax\n\tmovl %%eax, %0" : "=m"(memory[1]) : "m"(memory[0]) : "eax");
  printf("memory: %d %d\n", memory[0], memory[1]);
  printf("jump: %s\n", jump(sum) ? "taken" : "not taken");
  __asm__ volatile("syscall" : "=a"(process) : "a"(SYS_getpid) : "rcx", "r11", "memory");
  printf("system call: %s\n", process == getpid() ? "same process" : "another");
  __asm__ volatile("rep movsb" : "+S"(from), "+D"(at), "+c"(count) : : "memory");
  printf("bytes: %s\n", to);
  return 0;
}
