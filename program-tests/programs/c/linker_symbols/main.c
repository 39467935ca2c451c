//# flags: -w
//# stdout: text: 1 1
//# stdout: data: 1 1 1
//# stdout: zeroes: 1 1
//# stdout: header: 1 62 1
//# stdout: the debugger's record: 1
//# stdout: found by a scan: 1
//# stdout: tables: 1 1 1
//# stdout: others: 1 1 1 1 1 1
//# stdout: weak: 1 1 1
//# stdout: an object of the process: 6 7
//# skip package: the code of all units but one lies among the data
//# skip fixed: addresses of 32 bits do not reach what the linker makes
/* What linkers and start files define: profilers compare with it, collectors scan between it, and some read the program's own header. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

extern char etext[], _etext[], edata[], _edata[], end[], _end[], __bss_start[], __executable_start[], data_start[], __data_start[];
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));
extern void (*__init_array_start[])(void), (*__init_array_end[])(void), (*__fini_array_start[])(void), (*__fini_array_end[])(void);
extern void (*__preinit_array_start[])(void), (*__preinit_array_end[])(void);
extern char _GLOBAL_OFFSET_TABLE_[], __dso_handle[];
extern void _init(void), _fini(void), _start(void);
extern int _IO_stdin_used;
int *other_variable(void);
int *other_zeroes(void);
int weak_ends(void);

int variable = 4, zeroes[1000];
static int *volatile root;

/* The flags of the segment of the program that holds an address. */
static int find(struct dl_phdr_info *info, size_t size, void *address) {
  if (info->dlpi_name[0])
    return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const Elf64_Phdr *header = &info->dlpi_phdr[i];
    char *start = (char *)info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_LOAD && (char *)address >= start && (char *)address < start + header->p_memsz)
      return 1 + (header->p_flags & (PF_R | PF_W | PF_X));
  }
  return 0;
}

static int in(void *address, char *start, char *limit) { return (char *)address >= start && (char *)address < limit; }

int main(void) {
  printf("text: %d %d\n", in(main, __executable_start, etext) && in(other_variable, __executable_start, etext), etext == _etext);
  printf("data: %d %d %d\n", in(&variable, data_start, edata) && in(other_variable(), data_start, edata), edata == _edata, data_start == __data_start);
  printf("zeroes: %d %d\n", in(zeroes, __bss_start, end) && in(other_zeroes(), __bss_start, end), end == _end);
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)__ehdr_start;
  const Elf64_Phdr *headers = (const Elf64_Phdr *)(__ehdr_start + header->e_phoff);
  int points_to_dynamic = 0;
  for (int i = 0; i < header->e_phnum; i++)
    points_to_dynamic |= headers[i].p_type == PT_DYNAMIC && __ehdr_start + headers[i].p_vaddr == (char *)_DYNAMIC;
  printf("header: %d %d %d\n", !memcmp(header->e_ident, ELFMAG, SELFMAG), header->e_machine, points_to_dynamic);
  struct r_debug *record = 0;
  for (Elf64_Dyn *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == DT_DEBUG)
      record = (struct r_debug *)entry->d_un.d_ptr;
  printf("the debugger's record: %d\n", record && record->r_version >= 1 && record->r_map);
  root = &variable;
  int found = 0;
  for (int *volatile *at = (void *)(((unsigned long)data_start + 7) & ~7ul); (char *)at < _end && !found; at++)
    found = at == &root && *at == &variable;
  printf("found by a scan: %d\n", found);
  printf("tables: %d %d %d\n", __init_array_start <= __init_array_end, __fini_array_start <= __fini_array_end, __preinit_array_start <= __preinit_array_end);
  printf("others: %d %d %d %d %d %d\n", _GLOBAL_OFFSET_TABLE_ != 0, __dso_handle != 0, _init != 0, _fini != 0, _start != 0, _IO_stdin_used == 0x20001);
  printf("weak: %d %d %d\n", weak_ends() & 1, weak_ends() >> 1 & 1, weak_ends() >> 2 & 1);
  int of_code = dl_iterate_phdr(find, (void *)main), of_data = dl_iterate_phdr(find, &variable);
  printf("an object of the process: %d %d\n", of_code, of_data);
  return 0;
}
