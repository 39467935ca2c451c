; stdout: 2 2 3
; Code generation lists the places that can be patched, one for each function with room for it. A pointer to the function leads behind that room.
target triple = "x86_64-pc-linux-gnu"

@__start___patchable_function_entries = external hidden global ptr
@__stop___patchable_function_entries = external hidden global ptr
@format = private constant [10 x i8] c"%d %d %d\0A\00"
@functions = global [2 x ptr] [ptr @exported, ptr @local]

declare i32 @printf(ptr, ...)

define i32 @exported(i32 %x) noinline "patchable-function-prefix"="1" "patchable-function-entry"="2" {
  ret i32 %x
}

define internal i32 @local(i32 %x) noinline "patchable-function-prefix"="1" "patchable-function-entry"="2" {
  %y = add i32 %x, 1
  ret i32 %y
}

define i1 @is_listed(ptr %function) noinline {
entry:
  %place = getelementptr i8, ptr %function, i64 -1
  br label %next
next:
  %entry_at = phi ptr [ @__start___patchable_function_entries, %entry ], [ %following, %look ]
  %is_end = icmp eq ptr %entry_at, @__stop___patchable_function_entries
  br i1 %is_end, label %missing, label %look
look:
  %listed = load ptr, ptr %entry_at
  %following = getelementptr ptr, ptr %entry_at, i64 1
  %is_it = icmp eq ptr %listed, %place
  br i1 %is_it, label %found, label %next
found:
  ret i1 true
missing:
  ret i1 false
}

define i32 @main() {
  %first = load volatile ptr, ptr @functions
  %second = load volatile ptr, ptr getelementptr inbounds ([2 x ptr], ptr @functions, i64 0, i64 1)
  %one = call i32 %first(i32 1)
  %two = call i32 %second(i32 1)
  %sum = add i32 %one, %two
  %bytes = sub i64 ptrtoint (ptr @__stop___patchable_function_entries to i64), ptrtoint (ptr @__start___patchable_function_entries to i64)
  %entries = sdiv i64 %bytes, 8
  %first_listed = call i1 @is_listed(ptr %first)
  %second_listed = call i1 @is_listed(ptr %second)
  %first_counts = zext i1 %first_listed to i32
  %second_counts = zext i1 %second_listed to i32
  %listed = add i32 %first_counts, %second_counts
  call i32 (ptr, ...) @printf(ptr @format, i64 %entries, i32 %listed, i32 %sum)
  ret i32 0
}
