@table_8 = internal addrspace(1) constant [16 x i8] c"\01\00\00\00\02\00\00\00\03\00\00\00\04\00\00\00", align 16
@shared = external addrspace(3) global [0 x i8], align 16

declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sqrt.f32(float)
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.nvvm.barrier0()

define ptx_kernel void @vyre_everything(ptr addrspace(1) noalias readonly align 4 %a0, ptr addrspace(1) align 1 %a1, ptr addrspace(1) align 4 %a2, ptr addrspace(1) align 4 %a3, ptr addrspace(1) align 4 %a4, i32 %a5, i32 %a6, i32 %a7, i32 %a8, i32 %a9, i32 %a10) "nvvm.reqntid"="8,8,1" {
entry:
  %v4 = alloca [32 x i8], align 16
  %v43 = alloca float
  %v44 = alloca i32
  %v68 = alloca i32
  br label %start
start:
  %v1 = bitcast i32 %a5 to float
  %v2 = icmp ne i32 %a6, 0
  %v3 = trunc i32 %a7 to i8
  call void @llvm.memset.p0.i64(ptr %v4, i8 0, i64 32, i1 false)
  %v5 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v6 = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %v7 = mul i32 %v6, 8
  %v8 = add i32 %v5, %v7
  br label %fill.1
fill.1:
  %v9 = phi i32 [ %v8, %start ], [ %v10, %fill_more.2 ]
  %v11 = icmp ult i32 %v9, 1
  br i1 %v11, label %fill_more.2, label %filled.3
fill_more.2:
  %v12 = zext i32 %v9 to i64
  %v13 = getelementptr <4 x i32>, ptr addrspace(3) @shared, i64 %v12
  store <4 x i32> zeroinitializer, ptr addrspace(3) %v13, align 16
  %v10 = add i32 %v9, 64
  br label %fill.1
filled.3:
  call void @llvm.nvvm.barrier0()
  %v14 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %v15 = mul i32 %v14, 8
  %v16 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v17 = add i32 %v15, %v16
  %v18 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %v19 = mul i32 %v18, 8
  %v20 = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %v21 = add i32 %v19, %v20
  %v22 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v23 = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %v24 = mul i32 %v23, 8
  %v25 = add i32 %v22, %v24
  %v26 = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %v27 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v28 = icmp ult i32 %v21, %a8
  %v29 = icmp ult i32 %v17, %a9
  %v30 = and i1 %v28, %v29
  br i1 %v30, label %inside.4, label %past.5
inside.4:
  %v31 = mul i32 %v21, %a9
  %v32 = add i32 %v31, %v17
  %v33 = zext i32 %v32 to i64
  %v34 = getelementptr float, ptr addrspace(1) %a0, i64 %v33
  %v35 = load float, ptr addrspace(1) %v34, align 4
  %v36 = freeze float %v35
  br label %past.5
past.5:
  %v37 = phi float [ %v36, %inside.4 ], [ 0x0000000000000000, %filled.3 ]
  %v38 = fmul float %v37, %v1
  %v39 = mul i32 %v26, 8
  %v40 = add i32 %v39, %v27
  %v41 = zext i32 %v40 to i64
  %v42 = getelementptr float, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @shared, i64 16), i64 %v41
  store float %v38, ptr addrspace(3) %v42, align 4
  call void @llvm.nvvm.barrier0()
  store float 0x0000000000000000, ptr %v43
  %v45 = icmp slt i32 0, 8
  %v46 = sub i32 8, 0
  %v47 = select i1 %v45, i32 %v46, i32 0
  store i32 0, ptr %v44
  br label %for.6
for.6:
  %v48 = load i32, ptr %v44
  %v49 = icmp ult i32 %v48, %v47
  br i1 %v49, label %turn.7, label %done.9
turn.7:
  %v50 = mul i32 %v48, 1
  %v51 = add i32 0, %v50
  br i1 %v2, label %then.10, label %endif.12
then.10:
  br label %next.8
never.13:
  br label %endif.12
endif.12:
  %v52 = load float, ptr %v43
  %v53 = mul i32 %v26, 8
  %v54 = add i32 %v53, %v51
  %v55 = zext i32 %v54 to i64
  %v56 = getelementptr float, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @shared, i64 16), i64 %v55
  %v57 = load float, ptr addrspace(3) %v56, align 4
  %v58 = freeze float %v57
  %v59 = fadd float %v52, %v58
  store float %v59, ptr %v43
  %v60 = fcmp ogt float %v59, 0x4008000000000000
  br i1 %v60, label %then.14, label %else.15
then.14:
  br label %done.9
never.17:
  br label %endif.16
else.15:
  %v61 = fcmp olt float %v59, 0xBFF0000000000000
  br i1 %v61, label %then.18, label %else.19
then.18:
  store float 0x0000000000000000, ptr %v43
  br label %endif.20
else.19:
  %v62 = load float, ptr %v43
  %v63 = fdiv float %v62, 0x4008000000000000
  store float %v63, ptr %v43
  br label %endif.20
endif.20:
  br label %endif.16
endif.16:
  %v64 = mul i32 %v51, 3
  %v65 = zext i32 %v51 to i64
  %v66 = getelementptr i32, ptr %v4, i64 %v65
  store i32 %v64, ptr %v66, align 4
  br label %next.8
next.8:
  %v67 = add i32 %v48, 1
  store i32 %v67, ptr %v44
  br label %for.6
done.9:
  %v69 = icmp slt i32 -2147483647, 10
  %v70 = sub i32 10, -2147483647
  %v71 = sub i32 %v70, 1
  %v72 = udiv i32 %v71, 3
  %v73 = add i32 %v72, 1
  %v74 = select i1 %v69, i32 %v73, i32 0
  store i32 0, ptr %v68
  br label %for.21
for.21:
  %v75 = load i32, ptr %v68
  %v76 = icmp ult i32 %v75, %v74
  br i1 %v76, label %turn.22, label %done.24
turn.22:
  %v77 = mul i32 %v75, -3
  %v78 = add i32 10, %v77
  br label %loop.25
loop.25:
  %v79 = icmp ult i32 %v21, %a8
  br i1 %v79, label %inside.27, label %past.28
inside.27:
  %v80 = zext i32 %v21 to i64
  %v81 = getelementptr i8, ptr addrspace(1) %a1, i64 %v80
  %v82 = load i8, ptr addrspace(1) %v81, align 1
  %v83 = freeze i8 %v82
  %v84 = icmp ne i8 %v83, 0
  br label %past.28
past.28:
  %v85 = phi i1 [ %v84, %inside.27 ], [ false, %loop.25 ]
  br i1 %v85, label %then.29, label %endif.31
then.29:
  br label %done.26
never.32:
  br label %endif.31
endif.31:
  %v86 = load float, ptr %v43
  %v87 = call float @llvm.sqrt.f32(float %v86)
  %v88 = call float @llvm.fma.f32(float %v86, float %v86, float %v1)
  %v89 = fadd float %v87, %v88
  store float %v89, ptr %v43
  %v90 = fcmp oeq float %v89, 0x3FF0000000000000
  br i1 %v90, label %then.33, label %endif.35
then.33:
  ret void
never.36:
  br label %endif.35
endif.35:
  br label %loop.25
done.26:
  br label %next.23
next.23:
  %v91 = add i32 %v75, 1
  store i32 %v91, ptr %v68
  br label %for.21
done.24:
  %v92 = icmp ult i32 %v21, %a8
  %v93 = icmp ult i32 %v17, %a9
  %v94 = and i1 %v92, %v93
  br i1 %v94, label %then.37, label %endif.39
then.37:
  %v95 = load float, ptr %v43
  %v96 = icmp ult i32 %v25, 8
  br i1 %v96, label %inside.40, label %past.41
inside.40:
  %v97 = zext i32 %v25 to i64
  %v98 = getelementptr i32, ptr %v4, i64 %v97
  %v99 = load i32, ptr %v98, align 4
  %v100 = freeze i32 %v99
  br label %past.41
past.41:
  %v101 = phi i32 [ %v100, %inside.40 ], [ 0, %then.37 ]
  %v102 = sitofp i32 %v101 to float
  %v103 = fadd float %v95, %v102
  %v104 = uitofp i32 %a10 to float
  %v105 = fadd float %v103, %v104
  %v106 = uitofp i8 %v3 to float
  %v107 = fadd float %v105, %v106
  %v108 = mul i32 %v21, %a9
  %v109 = add i32 %v108, %v17
  %v110 = zext i32 %v109 to i64
  %v111 = getelementptr float, ptr addrspace(1) %a2, i64 %v110
  store float %v107, ptr addrspace(1) %v111, align 4
  br label %endif.39
endif.39:
  %v112 = and i32 %v25, 3
  %v113 = zext i32 %v112 to i64
  %v114 = getelementptr i32, ptr addrspace(1) @table_8, i64 %v113
  %v115 = load i32, ptr addrspace(1) %v114, align 4
  %v116 = freeze i32 %v115
  %v117 = zext i32 %v25 to i64
  %v118 = getelementptr i32, ptr addrspace(1) %a3, i64 %v117
  %v119 = atomicrmw add ptr addrspace(1) %v118, i32 %v116 syncscope("device") monotonic, align 4
  %v120 = freeze i32 %v119
  %v121 = zext i32 0 to i64
  %v122 = getelementptr i32, ptr addrspace(1) %a4, i64 %v121
  %v123 = atomicrmw max ptr addrspace(1) %v122, i32 -1 syncscope("device") monotonic, align 4
  %v124 = freeze i32 %v123
  %v125 = zext i32 0 to i64
  %v126 = getelementptr i32, ptr addrspace(1) %a3, i64 %v125
  %v127 = cmpxchg ptr addrspace(1) %v126, i32 %v120, i32 5 syncscope("device") monotonic monotonic, align 4
  %v128 = extractvalue { i32, i1 } %v127, 0
  %v129 = freeze i32 %v128
  %v130 = zext i32 1 to i64
  %v131 = getelementptr i32, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @shared, i64 0), i64 %v130
  %v132 = atomicrmw add ptr addrspace(3) %v131, i32 %v129 syncscope("block") monotonic, align 4
  %v133 = freeze i32 %v132
  %v134 = icmp eq i32 %v120, 1
  %v135 = icmp ult i32 %v21, %a8
  br i1 %v135, label %inside.42, label %past.43
inside.42:
  %v136 = zext i1 %v134 to i8
  %v137 = zext i32 %v21 to i64
  %v138 = getelementptr i8, ptr addrspace(1) %a1, i64 %v137
  store i8 %v136, ptr addrspace(1) %v138, align 1
  br label %past.43
past.43:
  ret void
}
