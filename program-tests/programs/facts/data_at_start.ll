; stdout: 7 4
; Callers read the word at the first byte of a function, which jumps over it.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [7 x i8] c"%d %d\0A\00"
@function = global ptr @marked

declare i32 @printf(ptr, ...)

define i32 @marked(i32 %x) noinline prologue <{ i8, i8, i32 }> <{ i8 -21, i8 4, i32 7 }> {
  ret i32 %x
}

define i32 @main() {
  %function = load volatile ptr, ptr @function
  %inside = getelementptr i8, ptr %function, i64 2
  %seven = load i32, ptr %inside, align 1
  %four = call i32 %function(i32 4)
  call i32 (ptr, ...) @printf(ptr @format, i32 %seven, i32 %four)
  ret i32 0
}
