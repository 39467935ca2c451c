; stdout: 35
; A handler finds a frame of the processor above its stack pointer, and ends with another return.
target triple = "x86_64-pc-linux-gnu"

@format = private constant [4 x i8] c"%d\0A\00"
@seen = global i64 0

declare i32 @printf(ptr, ...)

define x86_intrcc void @handler(ptr byval([5 x i64]) %frame) noinline {
  %flags_at = getelementptr i64, ptr %frame, i64 1
  %segment = load i64, ptr %flags_at
  store volatile i64 %segment, ptr @seen
  ret void
}

define i32 @main() noinline {
  %function = load volatile ptr, ptr @pointer
  ; The frame that an interrupt of the same level leaves, with the segments that are there.
  call void asm sideeffect "movq %rsp, %rdx\0Aandq $$-16, %rsp\0Amovl %ss, %ecx\0Apushq %rcx\0Apushq %rdx\0Apushfq\0Amovl %cs, %ecx\0Apushq %rcx\0Aleaq 1f(%rip), %rcx\0Apushq %rcx\0Ajmpq *%rax\0A1:", "{rax},~{rcx},~{rdx},~{memory},~{flags}"(ptr %function)
  %segment = load volatile i64, ptr @seen
  %rest = and i64 %segment, 3
  %sum = add i64 %rest, 32
  call i32 (ptr, ...) @printf(ptr @format, i64 %sum)
  ret i32 0
}

@pointer = global ptr @handler
