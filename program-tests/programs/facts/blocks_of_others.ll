; stdout: 2 1
; The address of a block stands in another function, and in a table: each leads to the one body that has the block.
target triple = "x86_64-pc-linux-gnu"

@table = global [2 x ptr] [ptr blockaddress(@jump, %first), ptr blockaddress(@jump, %second)]
@format = private constant [7 x i8] c"%d %d\0A\00"

declare i32 @printf(ptr, ...)

define i32 @jump(ptr %to) noinline {
  indirectbr ptr %to, [label %first, label %second]
first:
  ret i32 1
second:
  ret i32 2
}

define ptr @choose() noinline {
  ret ptr blockaddress(@jump, %second)
}

define i32 @main() {
  %chosen = call ptr @choose()
  %two = call i32 @jump(ptr %chosen)
  %listed = load ptr, ptr @table
  %one = call i32 @jump(ptr %listed)
  call i32 (ptr, ...) @printf(ptr @format, i32 %two, i32 %one)
  ret i32 0
}
