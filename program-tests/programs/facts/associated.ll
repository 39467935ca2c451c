; stdout: 3 1
; A variable in a section of its own goes with the function that it is associated with.
target triple = "x86_64-pc-linux-gnu"

@__start_notes = external hidden global i8
@__stop_notes = external hidden global i8
@note = internal constant i32 7, section "notes", !associated !0
@llvm.used = appending global [1 x ptr] [ptr @note], section "llvm.metadata"
@format = private constant [7 x i8] c"%d %d\0A\00"

declare i32 @printf(ptr, ...)

define i32 @noted(i32 %x) noinline {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @main() {
  %three = call i32 @noted(i32 2)
  %bytes = sub i64 ptrtoint (ptr @__stop_notes to i64), ptrtoint (ptr @__start_notes to i64)
  %notes = sdiv i64 %bytes, 4
  call i32 (ptr, ...) @printf(ptr @format, i32 %three, i64 %notes)
  ret i32 0
}

!0 = !{ptr @noted}
