; stdout: 0 77 1
; Words before a function may look like padding: a zero, a no-op with a number in it, and an address, which is zero in an object.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [10 x i8] c"%d %d %d\0A\00"
@functions = global [3 x ptr] [ptr @zero, ptr @number, ptr @address]

declare i32 @printf(ptr, ...)

define i32 @zero(i32 %x) noinline prefix i32 0 {
  ret i32 %x
}

; nopl 77(%rax), and nopl (%rax)
define i32 @number(i32 %x) noinline prefix <{ i8, i8, i8, i32, i8, i8, i8 }> <{ i8 15, i8 31, i8 -128, i32 77, i8 15, i8 31, i8 0 }> {
  ret i32 %x
}

define i32 @address(i32 %x) noinline prefix ptr @format {
  ret i32 %x
}

define ptr @before(i64 %which, i64 %distance) noinline {
  %place = getelementptr [3 x ptr], ptr @functions, i64 0, i64 %which
  %function = load volatile ptr, ptr %place
  %called = call i32 %function(i32 1)
  %word = getelementptr i8, ptr %function, i64 %distance
  ret ptr %word
}

define i32 @main() {
  %zero_at = call ptr @before(i64 0, i64 -4)
  %zero = load i32, ptr %zero_at
  %number_at = call ptr @before(i64 1, i64 -7)
  %number = load i32, ptr %number_at, align 1
  %address_at = call ptr @before(i64 2, i64 -8)
  %address = load ptr, ptr %address_at
  %is_it = icmp eq ptr %address, @format
  %one = zext i1 %is_it to i32
  call i32 (ptr, ...) @printf(ptr @format, i32 %zero, i32 %number, i32 %one)
  ret i32 0
}
