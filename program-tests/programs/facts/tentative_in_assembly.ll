; stdout: 5 6
; The assembly of a body defines a tentative variable, and another function uses it by name.
target triple = "x86_64-pc-linux-gnu"

@common_of_body = external global i32
@format = private constant [7 x i8] c"%d %d\0A\00"

declare i32 @printf(ptr, ...)

define void @set(i32 %x) noinline {
  call void asm sideeffect ".comm common_of_body,4,4", ""()
  store volatile i32 %x, ptr @common_of_body
  ret void
}

define i32 @get() noinline {
  %value = load volatile i32, ptr @common_of_body
  ret i32 %value
}

define i32 @main() {
  call void @set(i32 5)
  %five = call i32 @get()
  call void @set(i32 6)
  %six = call i32 @get()
  call i32 (ptr, ...) @printf(ptr @format, i32 %five, i32 %six)
  ret i32 0
}
