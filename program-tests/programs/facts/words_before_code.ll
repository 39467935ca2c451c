; stdout: 78 101 7
; Callers read the words that stand before a function (prefix data), and those at its first byte (prologue data).
target triple = "x86_64-pc-linux-gnu"

@format = private constant [10 x i8] c"%d %d %d\0A\00"
@functions = global [2 x ptr] [ptr @exported, ptr @local]

declare i32 @printf(ptr, ...)

define i32 @exported(i32 %x) noinline prefix i32 77 {
  ret i32 %x
}

define internal i32 @local(i32 %x) noinline prefix <{ i32, i32 }> <{ i32 5, i32 99 }> {
  %y = add i32 %x, 1
  ret i32 %y
}

; A short jump over the word 7.
define i32 @marked(i32 %x) noinline prologue <{ i8, i8, i32 }> <{ i8 -21, i8 4, i32 7 }> {
  ret i32 %x
}

define i32 @word_and_call(i64 %which) noinline {
  %place = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %which
  %function = load ptr, ptr %place
  %before = getelementptr i8, ptr %function, i64 -4
  %word = load i32, ptr %before
  %result = call i32 %function(i32 1)
  %sum = add i32 %word, %result
  ret i32 %sum
}

define i32 @main() {
  %first = call i32 @word_and_call(i64 0)
  %second = call i32 @word_and_call(i64 1)
  %inside = getelementptr i8, ptr @marked, i64 2
  %third = load i32, ptr %inside, align 1
  %called = call i32 @marked(i32 0)
  %sum = add i32 %third, %called
  call i32 (ptr, ...) @printf(ptr @format, i32 %first, i32 %second, i32 %sum)
  ret i32 0
}
