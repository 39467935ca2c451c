; stdout: 12 21
; A call through a pointer checks the hash of the type that stands before the function (KCFI).
target triple = "x86_64-pc-linux-gnu"

@format = private constant [7 x i8] c"%d %d\0A\00"
@functions = global [2 x ptr] [ptr @exported, ptr @local]

declare i32 @printf(ptr, ...)

define i32 @exported(i32 %x) noinline !kcfi_type !1 {
  %y = add i32 %x, 2
  ret i32 %y
}

define internal i32 @local(i32 %x) noinline !kcfi_type !1 {
  %y = add i32 %x, 11
  ret i32 %y
}

define i32 @call(i64 %which, i32 %x) noinline !kcfi_type !2 {
  %place = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %which
  %function = load ptr, ptr %place
  %result = call i32 %function(i32 %x) [ "kcfi"(i32 305419896) ]
  ret i32 %result
}

define i32 @main() !kcfi_type !2 {
  %first = call i32 @call(i64 0, i32 10)
  %second = call i32 @call(i64 1, i32 10)
  call i32 (ptr, ...) @printf(ptr @format, i32 %first, i32 %second)
  ret i32 0
}

!llvm.module.flags = !{!0}
!0 = !{i32 4, !"kcfi", i32 1}
!1 = !{i32 305419896}
!2 = !{i32 19088743}
