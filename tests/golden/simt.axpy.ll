declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define ptx_kernel void @vyre_axpy(ptr addrspace(1) noalias readonly align 4 %a0, ptr addrspace(1) noalias align 4 %a1, i32 %a2, i32 %a3) "nvvm.reqntid"="256,1,1" {
entry:
  br label %start
start:
  %v1 = bitcast i32 %a2 to float
  %v2 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %v3 = mul i32 %v2, 256
  %v4 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v5 = add i32 %v3, %v4
  %v6 = icmp ult i32 %v5, %a3
  br i1 %v6, label %then.1, label %endif.3
then.1:
  %v7 = zext i32 %v5 to i64
  %v8 = getelementptr float, ptr addrspace(1) %a0, i64 %v7
  %v9 = load float, ptr addrspace(1) %v8, align 4
  %v10 = freeze float %v9
  %v11 = fmul float %v1, %v10
  %v12 = zext i32 %v5 to i64
  %v13 = getelementptr float, ptr addrspace(1) %a1, i64 %v12
  %v14 = load float, ptr addrspace(1) %v13, align 4
  %v15 = freeze float %v14
  %v16 = fadd float %v11, %v15
  %v17 = zext i32 %v5 to i64
  %v18 = getelementptr float, ptr addrspace(1) %a1, i64 %v17
  store float %v16, ptr addrspace(1) %v18, align 4
  br label %endif.3
endif.3:
  ret void
}
