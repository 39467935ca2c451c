; stdout: 0 0 4
; A function has the alignment that it asks for, at the address that others see.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [10 x i8] c"%d %d %d\0A\00"
@functions = global [2 x ptr] [ptr @exported, ptr @local]

declare i32 @printf(ptr, ...)

define i32 @exported(i32 %x) noinline align 256 {
  ret i32 %x
}

define internal i32 @local(i32 %x) noinline align 64 {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @main() {
  %first = load volatile ptr, ptr @functions
  %second = load volatile ptr, ptr getelementptr inbounds ([2 x ptr], ptr @functions, i64 0, i64 1)
  %first_at = ptrtoint ptr %first to i64
  %second_at = ptrtoint ptr %second to i64
  %first_over = and i64 %first_at, 255
  %second_over = and i64 %second_at, 63
  %one = call i32 %first(i32 1)
  %three = call i32 %second(i32 2)
  %sum = add i32 %one, %three
  call i32 (ptr, ...) @printf(ptr @format, i64 %first_over, i64 %second_over, i32 %sum)
  ret i32 0
}
