; stdout: 6
; Callers look for marks in the 16 bytes before a function, which may be the first of its page.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [4 x i8] c"%d\0A\00"
@functions = global [3 x ptr] [ptr @first, ptr @second, ptr @third]

declare i32 @printf(ptr, ...)

define i32 @first(i32 %x) noinline {
  ret i32 %x
}

define i32 @second(i32 %x) noinline {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @third(i32 %x) noinline {
  %y = add i32 %x, 2
  ret i32 %y
}

define i32 @look_and_call(i64 %which) noinline {
  %place = getelementptr [3 x ptr], ptr @functions, i64 0, i64 %which
  %function = load volatile ptr, ptr %place
  %before = getelementptr i8, ptr %function, i64 -16
  %words = load volatile i128, ptr %before, align 1
  %result = call i32 %function(i32 1)
  ret i32 %result
}

define i32 @main() {
  %one = call i32 @look_and_call(i64 0)
  %two = call i32 @look_and_call(i64 1)
  %three = call i32 @look_and_call(i64 2)
  %some = add i32 %one, %two
  %sum = add i32 %some, %three
  call i32 (ptr, ...) @printf(ptr @format, i32 %sum)
  ret i32 0
}
