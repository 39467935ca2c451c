; stdout: 6
; Code generation makes a table of all stack maps of a module, and gives it a name.
target triple = "x86_64-pc-linux-gnu"

@__LLVM_StackMaps = external constant i8
@format = private constant [4 x i8] c"%d\0A\00"

declare void @llvm.experimental.stackmap(i64, i32, ...)
declare i32 @printf(ptr, ...)

define i32 @mapped(i32 %x) noinline {
  call void (i64, i32, ...) @llvm.experimental.stackmap(i64 5, i32 0, i32 %x)
  ret i32 %x
}

define i32 @main() {
  %three = call i32 @mapped(i32 3)
  %version = load i8, ptr @__LLVM_StackMaps
  %number = zext i8 %version to i32
  %sum = add i32 %three, %number
  call i32 (ptr, ...) @printf(ptr @format, i32 %sum)
  ret i32 0
}
