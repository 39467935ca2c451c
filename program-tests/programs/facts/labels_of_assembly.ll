; stdout: 5 8 1
; Assembly in one function defines a symbol that the assembly of another, and code, refer to.
target triple = "x86_64-pc-linux-gnu"

module asm ".data"
module asm "hidden_word: .long 5"
module asm ".text"

@format = private constant [10 x i8] c"%d %d %d\0A\00"
@label_of_body = external global i8

declare i32 @printf(ptr, ...)

define i32 @reads() noinline {
  %word = call i32 asm sideeffect "movl hidden_word(%rip), $0", "=r"()
  ret i32 %word
}

define i32 @defines() noinline {
  call void asm sideeffect ".globl label_of_body\0Alabel_of_body:\0A\09nop", ""()
  ret i32 8
}

define i32 @uses() noinline {
  %is_there = icmp ne ptr @label_of_body, null
  %result = zext i1 %is_there to i32
  ret i32 %result
}

define i32 @main() {
  %five = call i32 @reads()
  %eight = call i32 @defines()
  %one = call i32 @uses()
  call i32 (ptr, ...) @printf(ptr @format, i32 %five, i32 %eight, i32 %one)
  ret i32 0
}
