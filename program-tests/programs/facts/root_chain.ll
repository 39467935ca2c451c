; stdout: 1 41
; Functions whose collector is "shadow-stack" share a variable that code generation defines.
target triple = "x86_64-pc-linux-gnu"

@llvm_gc_root_chain = external global ptr
@format = private constant [7 x i8] c"%d %d\0A\00"

declare void @llvm.gcroot(ptr, ptr)
declare i32 @printf(ptr, ...)

define i32 @rooted(ptr %object) noinline gc "shadow-stack" {
  %root = alloca ptr
  call void @llvm.gcroot(ptr %root, ptr null)
  store ptr %object, ptr %root
  %chain = load ptr, ptr @llvm_gc_root_chain
  %has_frame = icmp ne ptr %chain, null
  %result = zext i1 %has_frame to i32
  ret i32 %result
}

define i32 @also_rooted(i32 %x) noinline gc "shadow-stack" {
  %root = alloca ptr
  call void @llvm.gcroot(ptr %root, ptr null)
  store ptr null, ptr %root
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @main() {
  %object = alloca i32
  %one = call i32 @rooted(ptr %object)
  %more = call i32 @also_rooted(i32 40)
  call i32 (ptr, ...) @printf(ptr @format, i32 %one, i32 %more)
  ret i32 0
}
