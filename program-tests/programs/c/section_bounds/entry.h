typedef int hook_function(void);
#define ENTRY __attribute__((section("entries"), used))
#define HOOK __attribute__((used))
#define PUT(name) __attribute__((section("hooks"), used)) static hook_function *const put_##name = name
extern int __start_entries[], __stop_entries[];
extern hook_function *const __start_hooks[];
extern hook_function *const __stop_hooks[];
