//# stdout: from assembly: 21
//# stdout: data from assembly: 77
//# stdout: local label: 5
//# stdout: assembly calls C: 44
//# stdout: versioned name: 3
/* Symbols that file-level assembly defines and uses, within one file and across files. */
#include <stdio.h>

int triple(int x);
extern int number_in_assembly;
int five(void);
int twice_through_c(int x);
int plain(int x);

__asm__(".text\n"
        ".type five_local, @function\n"
        "five_local: movl $5, %eax\n"
        "  ret\n"
        ".globl five\n"
        ".type five, @function\n"
        "five: jmp five_local\n"
        ".size five, . - five\n");

int doubled(int x) { return x * 2; }
int renamed(int x) __asm__("a_name$with.odd.characters");
int renamed(int x) { return x + 1; }

int main(void) {
  printf("from assembly: %d\n", triple(7));
  printf("data from assembly: %d\n", number_in_assembly);
  printf("local label: %d\n", five());
  printf("assembly calls C: %d\n", twice_through_c(22));
  printf("versioned name: %d\n", plain(2));
  return 0;
}
